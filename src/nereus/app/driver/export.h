// `nereus export`: a run's newest actor as a Hugging Face model.
#pragma once

#include <filesystem>
#include <string>

namespace nereus {

// Writes the actor of the newest complete checkpoint into `output`, or into RUN/hf if that is
// empty. Says of which step it is and where it went. Throws Error(kInvalidInput) if there is none.
std::string export_run(const std::filesystem::path& run, const std::filesystem::path& output);

}  // namespace nereus
