"""A reward of your own: short sentences, in verl's form. Try it with

./nereus train examples/quickstart.yaml reward.name= custom_reward_function.path=examples/custom_reward.py
"""


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """data_source, ground_truth and extra_info are the row's; extra_info also has "prompt", "response_tokens" and
    "finished". Return a number, or a dict: "score" is the reward, other numbers become metrics (reward/NAME/mean).
    """
    sentences = [sentence for sentence in solution_str.split(".") if sentence.strip()]
    words = len(solution_str.split()) / max(1, len(sentences))
    return {"score": -abs(words - 6) / 6, "words_per_sentence": words}
