#include "nereus/runtime/engine/state_copier.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

namespace nereus {

void StateCopier::add(const UnitState& source, const UnitState& target, const Move& move) {
  const c10::InferenceMode no_autograd;
  for (const StateComponent& component : target.schema().components) {
    if (part_of(component.kind) != move.part) continue;
    const at::Tensor to = target.region(move.tensor, component.kind, move.box);
    const at::Tensor from = source.region(move.tensor, component.kind, move.box);
    if (to.is_cuda() && to.scalar_type() == from.scalar_type()) {
      copies_.add(to, from);
    } else {
      to.copy_(from);
    }
  }
}

}  // namespace nereus
