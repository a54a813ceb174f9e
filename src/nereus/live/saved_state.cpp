#include "nereus/live/saved_state.h"

#include <ATen/ATen.h>

#include "nereus/base/error.h"
#include "nereus/data/hf_model.h"

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

}  // namespace

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
