#include "nereus/runtime/bridge/chat_renderer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "chat_template_source.h"
#include "nereus/core/base/error.h"
#include "nereus/runtime/bridge/python_workers.h"

namespace nereus {

namespace {

constexpr Seconds kTimeout{10};
constexpr Bytes kMemory{int64_t{1} << 30};
constexpr int64_t kLongest = int64_t{16} << 20;  // characters
// Conversations that are rendered by one call: a call costs as much as some of them.
constexpr size_t kAtOnce = 64;

PythonWorkers open_workers(const std::filesystem::path& directory, const Json& special_tokens) {
  try {
    return PythonWorkers(
        {.source = kChatTemplateSource,
         .arguments = {{"directory", directory.string()}, {"tokens", special_tokens}},
         .workers = 1,
         .timeout = kTimeout,
         .start_timeout = kTimeout,  // constants are computed when it is read
         .memory = kMemory,
         .largest_answer = kLongest});
  } catch (const Error& error) {
    throw Error(error.code(), "chat template of " + directory.string() + ": " + error.what());
  }
}

std::string argument(std::span<const std::string> conversations) {
  return Json(std::vector<std::string>(conversations.begin(), conversations.end()))
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

PythonAnswer render(PythonWorkers& workers, std::span<const std::string> conversations) {
  return std::move(workers.call({argument(conversations)}).front());
}

std::string reason(const PythonAnswer& answer) {
  return answer.reason + (answer.failure == "memory" ? "; it may take " + to_string(kMemory) : "");
}

// All at once; if that fails, one by one up to the one that fails. False: there is no template.
bool render_into(RenderedChats& chats, PythonWorkers& workers,
                 std::span<const std::string> conversations) {
  const PythonAnswer answer = render(workers, conversations);
  if (answer.failure.empty() && answer.value.is_null()) return false;
  if (answer.failure.empty()) {
    for (const Json& text : answer.value) chats.texts.push_back(text.get<std::string>());
  } else if (conversations.size() == 1) {
    chats.failure = reason(answer);
  } else {
    for (size_t i = 0; i < conversations.size() && chats.failure.empty(); ++i) {
      render_into(chats, workers, conversations.subspan(i, 1));
    }
  }
  return true;
}

}  // namespace

std::optional<RenderedChats> render_chats(const std::filesystem::path& directory,
                                          const Json& special_tokens,
                                          const std::vector<std::string>& conversations) {
  PythonWorkers workers = open_workers(directory, special_tokens);
  RenderedChats chats;
  const std::span all(conversations);
  for (size_t begin = 0; begin < all.size() && chats.failure.empty(); begin += kAtOnce) {
    const auto part = all.subspan(begin, std::min(kAtOnce, all.size() - begin));
    if (!render_into(chats, workers, part)) return std::nullopt;
  }
  if (!chats.failure.empty()) {
    chats.failure = "chat template of " + directory.string() + ": " + chats.failure;
  }
  return chats;
}

}  // namespace nereus
