#include <pybind11/embed.h>
#include <pybind11/stl.h>

#include "nereus/runtime/bridge/hf_tokenizer.h"

#include <utility>

#include "hf_tokenizer_source.h"
#include "nereus/core/base/error.h"
#include "nereus/runtime/bridge/chat_renderer.h"
#include "nereus/runtime/bridge/python.h"

namespace nereus {

namespace {

namespace py = pybind11;

// Runs `call` under the GIL; a Python exception becomes an Error that names `where`.
template <class Call>
auto in_python(const std::string& where, Call call) {
  const py::gil_scoped_acquire gil;
  try {
    return call();
  } catch (const py::error_already_set& error) {
    // Without the traceback that what() has: it says nothing of the input.
    const auto type = py::str(error.type().attr("__name__")).cast<std::string>();
    const auto message = py::str(error.value()).cast<std::string>();
    throw Error(ErrorCode::kInvalidInput, where + ": " + type + ": " + message);
  }
}

class HfTokenizer final : public Tokenizer {
 public:
  explicit HfTokenizer(const std::filesystem::path& directory)
      : directory_(directory.string()), where_("tokenizer in " + directory_) {
    start_python();
    in_python(where_, [&] {
      tokenizer_ = run_source("nereus_hf_tokenizer", kHfTokenizerSource)["HfTokenizer"](
          directory_, kHfTokenizerSource);
    });
  }
  ~HfTokenizer() override {
    const py::gil_scoped_acquire gil;
    tokenizer_ = py::object();
  }
  HfTokenizer(const HfTokenizer&) = delete;
  HfTokenizer& operator=(const HfTokenizer&) = delete;

  std::vector<int64_t> encode(const std::string& text, bool add_special) const override {
    return call<std::vector<int64_t>>("encode", text, add_special);
  }

  std::optional<EncodedChats> encode_chats(
      const std::vector<std::string>& conversations) const override {
    std::optional<RenderedChats> chats = render_chats(directory_, special_tokens(), conversations);
    if (!chats) return std::nullopt;
    EncodedChats encoded{{}, std::move(chats->failure)};
    // The template writes the special tokens itself.
    for (const std::string& text : chats->texts) {
      encoded.tokens.push_back(encode(text, /*add_special=*/false));
    }
    return encoded;
  }

  std::string decode(std::span<const int64_t> tokens) const override {
    return std::move(decode_batch({{tokens.begin(), tokens.end()}}).front());
  }

  std::vector<std::string> decode_batch(
      const std::vector<std::vector<int64_t>>& batch) const override {
    return call<std::vector<std::string>>("decode_batch", batch);
  }

  std::vector<int64_t> missing_ids(int64_t count) const override {
    return call<std::vector<int64_t>>("missing_ids", count);
  }

 private:
  // What templates know under names such as bos_token; null: as the files say.
  Json special_tokens() const {
    return in_python(where_, [&] {
      const py::object text =
          py::module_::import("json").attr("dumps")(tokenizer_.attr("special_tokens"));
      return Json::parse(text.cast<std::string>());
    });
  }
  static py::dict run_source(const char* name, const char* source) {
    py::dict module;
    module["__name__"] = name;
    py::exec(source, module);
    return module;
  }

  template <class Result, class... Arguments>
  Result call(const char* method, const Arguments&... arguments) const {
    return in_python(where_, [&] {
      const py::object result = tokenizer_.attr(method)(arguments...);
      return result.cast<Result>();
    });
  }

  std::string directory_;
  std::string where_;
  py::object tokenizer_;  // hf_tokenizer.py's HfTokenizer
};

}  // namespace

std::unique_ptr<Tokenizer> open_hf_tokenizer(const std::filesystem::path& directory) {
  return std::make_unique<HfTokenizer>(directory);
}

}  // namespace nereus
