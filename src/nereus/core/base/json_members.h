// The text of JSON values, where numbers must keep the digits they are written with.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace nereus {

// The value of each member of the object that `json` is, as it is written there; of a name that
// comes twice, the last. `json` is text that parse_json() takes; if it is no object there are no
// members.
std::map<std::string, std::string> json_members(std::string_view json);

}  // namespace nereus
