#include "nereus/runtime/live/saved_state.h"

#include <ATen/ATen.h>

#include "nereus/core/base/error.h"
#include "nereus/runtime/data/hf_model.h"

namespace nereus {

namespace {

[[noreturn]] void refuse(const Checkpoint& checkpoint, const std::string& part,
                         const std::string& what) {
  throw Error(ErrorCode::kInvalidInput,
              checkpoint.directory.string() + " is of another job: " + part + " " + what +
                  "; resume with the model and model.dtype of then, or run without --resume");
}

std::string described(c10::IntArrayRef shape, at::ScalarType type) {
  std::string text = c10::toString(type);
  text += " [";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + "]";
}

// No count of a run comes near it; up to there they can be added up without overflow.
constexpr int64_t kMostCounted = int64_t{1} << 53;

template <class Number>
void verify_between(const Json& j, const char* key, Number least, Number most,
                    const std::string& where) {
  const auto value = require<Number>(j, key, where);
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidInput, where + ": " + key + " is " + shown_json(j.at(key)) +
                                            ", legal: " + shown_json(least) + " to " +
                                            shown_json(most));
}

}  // namespace

void verify_progress(const Checkpoint& checkpoint, const std::vector<std::string>& parts) {
  const std::string where = (checkpoint.directory / "manifest.json").string() + ": state";
  const Json& state = checkpoint.state;
  require<uint64_t>(state, "seed", where);
  verify_between<int>(state, "step", checkpoint.step, checkpoint.step, where);
  verify_between<double>(state, "kl_coef", 0, 1e300, where);
  if (state.contains("position")) {
    verify_between<int64_t>(state, "position", 0, kMostCounted, where);
  }
  for (const char* key : {"updates", "version"}) {
    const Json counts = require<Json>(state, key, where);
    for (const std::string& part : parts) {
      verify_between<int64_t>(counts, part.c_str(), 0, kMostCounted, where + ": " + key);
    }
  }
}

std::map<StateKind, TensorMap> read_state(const Checkpoint& checkpoint, const std::string& part,
                                          const StateSchema& schema) {
  TensorMap saved = read_part(checkpoint, part);
  std::map<StateKind, TensorMap> state;
  for (const StateComponent& component : schema.components) {
    for (const TensorSpec& tensor : schema.tensors) {
      const std::string key = to_string(component.kind) + "/" + tensor.name;
      auto found = saved.extract(key);
      if (found.empty()) refuse(checkpoint, part, "has no " + key);
      const std::string is = described(found.mapped().sizes(), found.mapped().scalar_type());
      const std::string needed = described(tensor.shape, scalar_type(component.dtype));
      if (is != needed) refuse(checkpoint, part, "has " + key + " as " + is + ", not " + needed);
      state[component.kind][tensor.name] = std::move(found.mapped());
    }
  }
  if (!saved.empty()) {
    refuse(checkpoint, part, "has " + saved.begin()->first + ", of no use to this job");
  }
  return state;
}

}  // namespace nereus
