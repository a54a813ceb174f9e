#include <pybind11/embed.h>
#include <pybind11/stl.h>

#include "nereus/bridge/hf_tokenizer.h"

#include <utility>

#include "chat_template_source.h"
#include "hf_tokenizer_source.h"
#include "nereus/base/error.h"
#include "nereus/bridge/python.h"

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
    render_chat_ = py::object();
  }
  HfTokenizer(const HfTokenizer&) = delete;
  HfTokenizer& operator=(const HfTokenizer&) = delete;

  std::vector<int64_t> encode(const std::string& text, bool add_special) const override {
    return call<std::vector<int64_t>>("encode", text, add_special);
  }

  std::optional<std::vector<int64_t>> encode_chat(const std::string& messages) const override {
    const auto text =
        in_python("chat template of " + directory_, [&]() -> std::optional<std::string> {
          load_chat_template();
          if (render_chat_.is_none()) return std::nullopt;
          return render_chat_(messages).cast<std::string>();
        });
    // The template writes the special tokens itself.
    return text ? std::optional(encode(*text, /*add_special=*/false)) : std::nullopt;
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

  // On first use, so that jobs without conversations need neither jinja2 nor a sound template.
  void load_chat_template() const {
    if (render_chat_) return;
    const py::dict module = run_source("nereus_chat_template", kChatTemplateSource);
    render_chat_ = module["load"](directory_, tokenizer_.attr("special_tokens"));
  }

  std::string directory_;
  std::string where_;
  py::object tokenizer_;            // hf_tokenizer.py's HfTokenizer
  mutable py::object render_chat_;  // guarded by the GIL; None: there is no template
};

}  // namespace

std::unique_ptr<Tokenizer> open_hf_tokenizer(const std::filesystem::path& directory) {
  return std::make_unique<HfTokenizer>(directory);
}

}  // namespace nereus
