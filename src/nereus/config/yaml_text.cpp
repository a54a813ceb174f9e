#include "nereus/config/yaml_text.h"

#include <yaml-cpp/depthguard.h>

#include <algorithm>
#include <set>
#include <vector>

#include "nereus/base/error.h"
#include "nereus/base/text.h"

namespace nereus {

namespace {

constexpr int kMostNesting = 50;
constexpr int kMostValues = 100'000;

// "FILE:12" where the line is known.
[[noreturn]] void refuse(const std::string& where, const YAML::Mark& mark,
                         const std::string& what) {
  throw Error(ErrorCode::kInvalidInput,
              where + (mark.is_null() ? "" : ":" + std::to_string(mark.line + 1)) + ": " + what);
}

// Goes through a tree, every alias as often as it is used.
class Walk {
 public:
  explicit Walk(std::string where) : where_(std::move(where)) {}

  void visit(const YAML::Node& node) {
    if (++values_ > kMostValues) {
      refuse(where_, node.Mark(),
             "more than " + std::to_string(kMostValues) +
                 " values, counting aliases (*name) as often as they are used");
    }
    if (!node.IsMap() && !node.IsSequence()) return;
    const auto contains_itself = [&](const YAML::Node& above) { return above.is(node); };
    if (std::ranges::any_of(path_, contains_itself)) {
      refuse(where_, node.Mark(), "this contains itself, by an alias (*name) of its own anchor");
    }
    if (path_.size() == kMostNesting) {
      refuse(where_, node.Mark(), "nested deeper than " + std::to_string(kMostNesting) + " levels");
    }
    path_.push_back(node);
    node.IsMap() ? visit_map(node) : visit_list(node);
    path_.pop_back();
  }

 private:
  void visit_map(const YAML::Node& map) {
    std::set<std::string> seen;
    for (const auto& item : map) {
      const YAML::Node& key = item.first;
      if (!key.IsScalar()) refuse(where_, key.Mark(), "a key must be a single word");
      if (!seen.insert(key.Scalar()).second) {
        refuse(where_, key.Mark(), "the key " + shown(key.Scalar()) + " is given twice");
      }
      visit(item.second);
    }
  }

  void visit_list(const YAML::Node& list) {
    for (const YAML::Node& item : list) visit(item);
  }

  std::string where_;
  int values_ = 0;
  std::vector<YAML::Node> path_;
};

}  // namespace

YAML::Node load_yaml(const std::string& text, const std::string& where) {
  if (text.size() > kMostYamlBytes) {
    refuse(where, YAML::Mark::null_mark(),
           std::to_string(text.size()) + " bytes of YAML; at most " +
               std::to_string(kMostYamlBytes) + " are legal");
  }
  YAML::Node root;
  try {
    std::vector<YAML::Node> documents = YAML::LoadAll(text);
    std::erase_if(documents, [](const YAML::Node& document) { return document.IsNull(); });
    if (documents.size() > 1) {
      refuse(where, documents[1].Mark(), "a second document begins here; only one is read");
    }
    if (!documents.empty()) root.reset(documents[0]);
  } catch (const YAML::DeepRecursion& error) {
    refuse(where, error.mark, "nested deeper than " + std::to_string(kMostNesting) + " levels");
  } catch (const YAML::Exception& error) {
    refuse(where, error.mark, "not valid YAML: " + error.msg);
  }
  verify_yaml(root, where);
  return root;
}

void verify_yaml(const YAML::Node& root, const std::string& where) { Walk(where).visit(root); }

}  // namespace nereus
