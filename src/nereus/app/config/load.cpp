#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "nereus/app/config/describe.h"
#include "nereus/app/config/values.h"
#include "nereus/app/config/yaml_text.h"
#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/runtime/files/files.h"
#include "nereus/runtime/files/regular_file.h"

namespace nereus {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidInput, message);
}

std::vector<std::string> known_keys() {
  std::vector<std::string> keys;
  auto collect = [&keys](const std::string& key, auto&, const char*) { keys.push_back(key); };
  Config config;
  describe(config, collect);
  return keys;
}

// A key in messages: as it is, unless it is none.
std::string name_of(const std::string& key) {
  constexpr size_t kLongest = 100;
  const bool is_plain = key.size() <= kLongest && std::ranges::none_of(key, [](unsigned char c) {
                          return c < ' ' || c > '~';
                        });
  return is_plain ? key : shown(key, kLongest);
}

// One option as written: its value and where it stands ("quickstart.yaml:12").
struct Entry {
  YAML::Node value;
  std::string where;
};

// Where options were written: a file, whose lines are named in messages, or the command line.
struct Source {
  std::string name;
  bool has_lines = false;
  std::string at(const YAML::Node& node) const {
    return has_lines ? name + ":" + std::to_string(node.Mark().line + 1) : name;
  }
};

// The options of a file and of the command line, by dotted key.
class Entries {
 public:
  Entries() : known_(known_keys()) {}

  void read_file(const YAML::Node& root, const std::string& name) {
    if (root.IsNull()) return;
    if (!root.IsMap()) refuse(name + ": expected sections such as data: and trainer:");
    read_section(root, "", {name, true});
  }

  // "a.b=value" or "+a.b=value".
  void read_override(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      refuse(shown(text) + " is no override: write key=value, e.g. trainer.seed=2");
    }
    const size_t start = text[0] == '+' ? 1 : 0;
    const std::string key = text.substr(start, equals - start);
    const Source source{"command line"};
    read_option(key, load_yaml(text.substr(equals + 1), source.name + ": " + name_of(key)),
                source.name, source);
  }

  const std::map<std::string, Entry>& all() const { return entries_; }

 private:
  bool is_known(const std::string& key) const {
    return std::find(known_.begin(), known_.end(), key) != known_.end();
  }
  bool is_section(const std::string& key) const {
    return std::any_of(known_.begin(), known_.end(),
                       [&](const std::string& known) { return known.starts_with(key + "."); });
  }

  void read_section(const YAML::Node& map, const std::string& prefix, const Source& source) {
    for (const auto& item : map) {
      read_option(prefix + item.first.Scalar(), item.second, source.at(item.first), source);
    }
  }

  void read_option(const std::string& key, const YAML::Node& value, const std::string& at,
                   const Source& source) {
    if (is_known(key)) {
      entries_[key] = {value, at};
    } else if (key.starts_with("plan.")) {
      read_plan_part(key, value, at);
    } else if (value.IsMap() && (is_section(key) || value.size() > 0)) {
      read_section(value, key + ".", source);  // of an unknown section, each option is refused
    } else if (is_section(key)) {
      if (!value.IsNull()) refuse(at + ": " + name_of(key) + " is a section, not an option");
    } else {
      refuse(at + ": unknown option " + name_of(key) + suggestion(key));
    }
  }

  // plan.all.tp=2: the one option that has structure of its own.
  void read_plan_part(const std::string& key, const YAML::Node& value, const std::string& at) {
    const std::vector<std::string> path = split(key, '.');
    if (path.size() > 3) {
      refuse(at + ": " + name_of(key) + " has too many parts: write e.g. plan.all.tp");
    }
    YAML::Node plan =
        entries_.contains("plan") ? YAML::Clone(entries_["plan"].value) : YAML::Node();
    if (!plan.IsMap()) plan = YAML::Node(YAML::NodeType::Map);
    if (path.size() == 2) {
      plan[path[1]] = value;
    } else {
      YAML::Node stage = plan[path[1]];
      if (!stage.IsMap()) stage = YAML::Node(YAML::NodeType::Map);
      stage[path[2]] = value;
    }
    entries_["plan"] = {plan, at};
  }

  // Names the known option that is nearest, or the one of the same name in another section.
  std::string suggestion(const std::string& key) const {
    std::string best = nearest(key, known_);
    std::string tail(1, '.');
    tail += key.substr(key.rfind('.') + 1);
    for (const std::string& known : known_) {
      if (best.empty() && known.size() > tail.size() && known.ends_with(tail)) best = known;
    }
    return best.empty() ? "; docs/config.md lists them all" : "; did you mean " + best + "?";
  }

  std::vector<std::string> known_;
  std::map<std::string, Entry> entries_;
};

// Absolute paths of files that a config names.
class Locator {
 public:
  explicit Locator(const fs::path& directory) : directory_(fs::absolute(directory)) {}

  template <class T>
  void operator()(T&) const {}
  void operator()(SupplySetting& supply) const { (*this)(supply.file); }
  void operator()(PlanSetting& plan) const { (*this)(plan.file); }
  void operator()(fs::path& path) const {
    if (path.empty()) return;
    if (path.native().find('\0') != std::string::npos) refuse("a path has no NUL character");
    if (is_there(path)) {
      path = fs::absolute(path).lexically_normal();
      return;
    }
    for (fs::path folder = directory_;; folder = folder.parent_path()) {
      if (is_there(folder / path)) {
        path = (folder / path).lexically_normal();
        return;
      }
      if (folder == folder.parent_path()) break;
    }
    refuse("there is no " + path.string() + " (looked in " + fs::current_path().string() + ", " +
           directory_.string() + " and its parents)");
  }

 private:
  // A file or a directory: of anything else, reading may never come to an end.
  static bool is_there(const fs::path& path) {
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (failed && !fs::exists(status)) {
      if (status.type() == fs::file_type::not_found) return false;
      refuse(shown(path.string()) + ": " + failed.message());
    }
    if (!fs::is_directory(status)) require_regular_file(path);
    return true;
  }

  fs::path directory_;
};

// Visitor: fills each field from its entry.
class Reader {
 public:
  Reader(const std::map<std::string, Entry>& entries, const Locator& locate)
      : entries_(entries), locate_(locate) {}

  template <class T>
  void operator()(const std::string& key, T& field, const char*) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.value.IsNull()) return;
    const Entry& entry = found->second;
    constexpr size_t kShown = 200;
    const std::string value = one_line(entry.value);
    const std::string where =
        entry.where + ": " + key + " = " + (value.size() > kShown ? shown(value, kShown) : value);
    try {
      field = as_list_if<T>(entry.value).template as<T>();
      if (!is_finite(field)) throw Error(ErrorCode::kInvalidInput, "expected a finite number");
      locate_(field);
    } catch (const YAML::Exception&) {
      refuse(where + ": expected " + expected<T>());
    } catch (const Error& error) {
      refuse(where + ": " + error.what());
    } catch (const fs::filesystem_error& error) {
      refuse(where + ": " + error.code().message());
    }
  }

 private:
  // A lone value stands for a list of one.
  template <class T>
  static YAML::Node as_list_if(const YAML::Node& value) {
    if constexpr (requires(T list) { list.push_back({}); } && !std::is_same_v<T, std::string>) {
      if (value.IsScalar()) {
        YAML::Node list(YAML::NodeType::Sequence);
        list.push_back(value);
        return list;
      }
    }
    return value;
  }

  template <class T>
  static bool is_finite(const T& field) {
    if constexpr (std::is_same_v<T, double>) return std::isfinite(field);
    if constexpr (std::is_same_v<T, std::optional<double>>) return std::isfinite(field.value_or(0));
    if constexpr (std::is_same_v<T, std::vector<double>>) {
      return std::ranges::all_of(field, [](double number) { return std::isfinite(number); });
    }
    return true;
  }

  static std::string one_line(const YAML::Node& value) {
    YAML::Emitter out;
    out.SetMapFormat(YAML::Flow);
    out.SetSeqFormat(YAML::Flow);
    out << value;
    return out.c_str();
  }

  const std::map<std::string, Entry>& entries_;
  const Locator& locate_;
};

}  // namespace

Config parse_config(const std::string& yaml, const std::string& where, const fs::path& directory,
                    const std::vector<std::string>& overrides) {
  Entries entries;
  entries.read_file(load_yaml(yaml, where), where);
  for (const std::string& text : overrides) entries.read_override(text);
  Config config;
  const Locator locate(directory);
  Reader reader(entries.all(), locate);
  describe(config, reader);
  return config;
}

Config load_config(const fs::path& file, const std::vector<std::string>& overrides) {
  const fs::path directory = fs::absolute(file).parent_path();
  Config config = parse_config(read_text(file), file.string(), directory, overrides);
  if (config.trainer.experiment_name.empty()) {
    config.trainer.experiment_name = file.stem().string();
  }
  if (config.data.tokenizer.empty()) config.data.tokenizer = config.model.path;
  verify(config);
  return config;
}

fs::path run_directory(const Config& config) {
  const TrainerConfig& trainer = config.trainer;
  fs::path root = trainer.default_local_dir;
  if (root.empty()) root = fs::path("runs") / trainer.project_name / trainer.experiment_name;
  root = root.lexically_normal();
  if (!root.has_filename()) root = root.parent_path();  // "runs/a/"
  const bool has_name = root.filename() != "." && root.filename() != "..";
  std::error_code error;  // what is wrong with the path shows when it is used
  const bool is_link = fs::is_symlink(root, error);
  if (has_name && !(is_link && fs::exists(root, error))) return root;
  const fs::path canonical = fs::weakly_canonical(root, error);
  return error ? root : canonical;
}

}  // namespace nereus
