#include <pybind11/embed.h>
#include <pybind11/stl.h>

#include "nereus/bridge/hf_tokenizer.h"

#include <utility>

#include "chat_template_source.h"
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
  explicit HfTokenizer(const std::filesystem::path& file)
      : file_(file.string()), directory_(file.parent_path().string()) {
    start_python();
    in_python(file_, [&] {
      tokenizer_ = py::module_::import("tokenizers").attr("Tokenizer").attr("from_file")(file_);
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
    return in_python(file_, [&] {
      const py::object encoding =
          tokenizer_.attr("encode")(text, py::arg("add_special_tokens") = add_special);
      return encoding.attr("ids").cast<std::vector<int64_t>>();
    });
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
    return in_python(file_, [&] {
      const py::object texts =
          tokenizer_.attr("decode_batch")(batch, py::arg("skip_special_tokens") = true);
      return texts.cast<std::vector<std::string>>();
    });
  }

 private:
  // On first use, so that jobs without conversations need neither jinja2 nor a sound template.
  void load_chat_template() const {
    if (render_chat_) return;
    py::dict module;
    module["__name__"] = "nereus_chat_template";
    py::exec(kChatTemplateSource, module);
    render_chat_ = module["load"](directory_);
  }

  std::string file_;
  std::string directory_;
  py::object tokenizer_;
  mutable py::object render_chat_;  // guarded by the GIL; None: there is no template
};

}  // namespace

std::unique_ptr<Tokenizer> open_hf_tokenizer(const std::filesystem::path& tokenizer_json) {
  return std::make_unique<HfTokenizer>(tokenizer_json);
}

}  // namespace nereus
