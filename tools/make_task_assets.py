#!/usr/bin/env python3
"""Makes the data files of the example tasks.

    tools/make_task_assets.py lexicon vader_lexicon.txt assets/vader/vader_lexicon.txt
    tools/make_task_assets.py digits assets/digits
    tools/make_task_assets.py arithmetic examples/data/arithmetic.jsonl

`lexicon` keeps token and mean valence of VADER's lexicon. `digits` writes all prompts of verl's
DigitCompletion(max_number=9, max_diff=9, max_num_in_response=9), 800 to train.jsonl and 200 to test.jsonl.
As in verl, differences 0 and 9 give equal prompts, so the two files overlap a little. `arithmetic` writes word
problems of one and two steps in the manner of GSM8K, in the chat markup of SmolLM2.
"""

import argparse
import json
import pathlib
import random

MAX_NUMBER = MAX_DIFFERENCE = MAX_TERMS = 9
TRAIN_PROMPTS = 800

ARITHMETIC_PROMPTS = 400
CHAT = ("<|im_start|>system\nYou solve word problems. Reply with one short calculation.<|im_end|>\n"
        "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")


def slim_lexicon(source, target):
    rows = [line.split("\t")[:2] for line in source.read_text(encoding="utf-8").splitlines() if line]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(f"{token}\t{float(valence):g}\n" for token, valence in rows),
                      encoding="utf-8")


def digit_prompts():
    """{"prompt": "a,b:max,n", "answer": the next n terms modulo max}, in verl's order."""
    for first in range(MAX_NUMBER + 1):
        for difference in range(MAX_DIFFERENCE + 1):
            second = (first + difference) % MAX_NUMBER
            for count in range(MAX_TERMS + 1):
                terms = [(second + (second - first) * i) % MAX_NUMBER for i in range(1, count + 1)]
                yield {"prompt": f"{first},{second}:{MAX_NUMBER},{count}",
                       "answer": ",".join(map(str, terms))}


def write_digits(directory):
    rows = list(digit_prompts())
    random.Random(0).shuffle(rows)
    directory.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", rows[:TRAIN_PROMPTS]), ("test", rows[TRAIN_PROMPTS:])):
        lines = "".join(json.dumps(row) + "\n" for row in part)
        (directory / f"{name}.jsonl").write_text(lines)


def word_problem(draw):
    """(question, answer), small enough for a model of 135M parameters to be right now and then."""
    name, friend = draw.sample(("Ann", "Ben", "Carla", "Dan", "Eva", "Finn", "Gina", "Hugo"), 2)
    thing = draw.choice(("apples", "books", "coins", "marbles", "pencils", "shells", "stickers"))
    a, b, c = draw.randint(5, 20), draw.randint(2, 9), draw.randint(1, 4)
    return draw.choice((
        (f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?", a + b),
        (f"{name} has {a + b} {thing} and gives {b} to {friend}. How many {thing} does {name} have left?", a),
        (f"{name} has {c} boxes with {b} {thing} in each. How many {thing} does {name} have?", b * c),
        (f"{name} has {a} {thing}, gets {b} more and gives {c} to {friend}. "
         f"How many {thing} does {name} have now?", a + b - c),
        (f"{name} has {c} boxes with {b} {thing} in each and {a} more. "
         f"How many {thing} does {name} have in all?", a + b * c),
    ))


def write_arithmetic(file):
    draw = random.Random(0)
    problems = dict(word_problem(draw) for _ in range(ARITHMETIC_PROMPTS))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(
        json.dumps({"prompt": CHAT.format(question=question), "answer": answer}) + "\n"
        for question, answer in problems.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    lexicon = commands.add_parser("lexicon", help="slim VADER's lexicon to two columns")
    lexicon.add_argument("source", type=pathlib.Path)
    lexicon.add_argument("target", type=pathlib.Path)
    digits = commands.add_parser("digits", help="write the prompts of the digit task")
    digits.add_argument("directory", type=pathlib.Path)
    arithmetic = commands.add_parser("arithmetic", help="write the word problems of the arithmetic task")
    arithmetic.add_argument("file", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "lexicon":
        slim_lexicon(arguments.source, arguments.target)
    elif arguments.command == "digits":
        write_digits(arguments.directory)
    else:
        write_arithmetic(arguments.file)


if __name__ == "__main__":
    main()
