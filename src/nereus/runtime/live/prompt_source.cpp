#include "nereus/runtime/live/prompt_source.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "nereus/core/base/error.h"
#include "nereus/core/base/hash.h"
#include "nereus/core/base/json.h"
#include "nereus/core/base/random.h"

namespace nereus {

namespace {

// Without a chat template, a user's message alone is as good as a text.
bool is_one_question(const Json& messages) {
  return messages.size() == 1 && messages[0]["role"] == "user";
}

bool is_conversation(const Prompt& prompt) {
  return prompt.ids.empty() && !prompt.messages.empty();
}

// Tokens of the rows that are conversations, under the chat template; empty if there is none.
std::map<size_t, std::vector<int64_t>> encode_conversations(const std::vector<Prompt>& prompts,
                                                            const Tokenizer& tokenizer,
                                                            const DataOptions& options) {
  std::vector<size_t> rows;
  std::vector<std::string> conversations;
  for (size_t row = 0; row < prompts.size(); ++row) {
    if (!is_conversation(prompts[row])) continue;
    rows.push_back(row);
    conversations.push_back(prompts[row].messages);
  }
  if (rows.empty()) return {};
  std::optional<EncodedChats> chats = tokenizer.encode_chats(conversations);
  if (!chats) return {};
  if (!chats->failure.empty()) {
    const Prompt& failed = prompts[rows[chats->tokens.size()]];
    throw Error(ErrorCode::kInvalidInput,
                prompt_place(options.train_file, failed.line) + ": " + chats->failure);
  }
  std::map<size_t, std::vector<int64_t>> tokens;
  for (size_t i = 0; i < rows.size(); ++i) tokens[rows[i]] = std::move(chats->tokens[i]);
  return tokens;
}

std::vector<int64_t> encode(const Prompt& prompt, const Tokenizer& tokenizer,
                            const std::filesystem::path& directory) {
  if (!prompt.ids.empty()) return prompt.ids;
  if (is_conversation(prompt)) {
    const Json given = parse_json(prompt.messages, "messages");
    const Json& messages = given.is_object() ? given.at("messages") : given;
    if (given.is_object() || !is_one_question(messages)) {
      throw Error(ErrorCode::kInvalidInput,
                  std::to_string(messages.size()) + " messages, the first from \"" +
                      messages[0]["role"].get<std::string>() + "\", but the tokenizer in " +
                      directory.string() +
                      " has no chat template for more than one user message: give data.tokenizer "
                      "one with chat_template.jinja, or write the prompt as a text");
    }
  }
  return tokenizer.encode(prompt.text, /*add_special=*/true);
}

std::vector<int64_t> tokens_of(const Prompt& prompt, const Tokenizer& tokenizer,
                               const DataOptions& options) {
  try {
    return encode(prompt, tokenizer, options.tokenizer);
  } catch (const Error& error) {
    throw Error(error.code(), prompt_place(options.train_file, prompt.line) + ": " + error.what());
  }
}

void verify_tokens(const std::vector<int64_t>& tokens, const Prompt& prompt, int64_t vocab_size,
                   const DataOptions& options) {
  for (const int64_t token : tokens) {
    if (token >= 0 && token < vocab_size) continue;
    throw Error(ErrorCode::kInvalidInput,
                prompt_place(options.train_file, prompt.line) + ": token " + std::to_string(token) +
                    " is not in the actor's vocabulary of " + std::to_string(vocab_size));
  }
}

}  // namespace

PromptSource::PromptSource(const DataOptions& options, const Tokenizer& tokenizer,
                           int64_t vocab_size, uint64_t seed)
    : shuffle_(options.shuffle), seed_(seed) {
  std::vector<Prompt> prompts = read_prompts(options.train_file, options.prompt_key);
  auto conversations = encode_conversations(prompts, tokenizer, options);
  std::vector<Entry> too_long;
  for (size_t row = 0; row < prompts.size(); ++row) {
    const auto found = conversations.find(row);
    std::vector<int64_t> tokens = found != conversations.end()
                                      ? std::move(found->second)
                                      : tokens_of(prompts[row], tokenizer, options);
    verify_tokens(tokens, prompts[row], vocab_size, options);
    Entry entry{static_cast<int64_t>(row), std::move(prompts[row]), std::move(tokens)};
    const bool fits = static_cast<int64_t>(entry.tokens.size()) <= options.max_prompt_length;
    (fits ? entries_ : too_long).push_back(std::move(entry));
  }
  dropped_ = static_cast<int64_t>(too_long.size());
  if (dropped_ > 0 && !options.filter_overlong_prompts) {
    throw Error(ErrorCode::kInvalidInput,
                options.train_file.string() + ": " + std::to_string(dropped_) + " of " +
                    std::to_string(prompts.size()) +
                    " prompts are longer than data.max_prompt_length (" +
                    std::to_string(options.max_prompt_length) + " tokens); the first is row " +
                    std::to_string(too_long.front().prompt.line) + " with " +
                    std::to_string(too_long.front().tokens.size()) +
                    ". Raise the limit, or set data.filter_overlong_prompts=true to drop them");
  }
  if (entries_.empty()) {
    throw Error(ErrorCode::kInvalidInput,
                options.train_file.string() +
                    ": no prompt is left within data.max_prompt_length (" +
                    std::to_string(options.max_prompt_length) + " tokens)");
  }
}

const PromptSource::Entry& PromptSource::at(int64_t position) {
  const int64_t epoch = position / size();
  const int64_t within = position % size();
  if (!shuffle_) return entries_[within];
  if (epoch != epoch_) order_ = permutation(size(), seed_, static_cast<uint64_t>(epoch));
  epoch_ = epoch;
  return entries_[order_[within]];
}

const Prompt& PromptSource::row(int64_t index) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), index,
                       [](const Entry& entry, int64_t wanted) { return entry.index < wanted; });
  NEREUS_CHECK(found != entries_.end() && found->index == index,
               "no prompt of row " + std::to_string(index));
  return found->prompt;
}

int64_t PromptSource::longest() const {
  size_t longest = 0;
  for (const Entry& entry : entries_) longest = std::max(longest, entry.tokens.size());
  return static_cast<int64_t>(longest);
}

std::string PromptSource::fingerprint() const {
  uint64_t hash = shuffle_ ? 1 : 0;
  for (const Entry& entry : entries_) {
    hash = hash_bytes(std::as_bytes(std::span(entry.prompt.row)), hash);
    hash = hash_bytes(std::as_bytes(std::span(entry.tokens)), hash);
  }
  return to_hex(hash);
}

Experience start_batch(PromptSource& prompts, const DataOptions& data, int64_t position,
                       int64_t drawn) {
  const int64_t n = data.samples_per_prompt;
  Experience experience;
  for (int64_t i = 0; i < data.train_batch_size; ++i) {
    const auto& entry = prompts.at(position + i);
    for (int64_t k = 0; k < n; ++k) {
      Sample sample;
      sample.id = static_cast<uint64_t>((drawn + i) * n + k);
      sample.prompt_index = entry.index;
      sample.group = i;
      sample.prompt = entry.tokens;
      experience.push_back(std::move(sample));
    }
  }
  return experience;
}

}  // namespace nereus
