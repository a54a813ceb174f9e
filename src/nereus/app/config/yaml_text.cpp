#include "nereus/app/config/yaml_text.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"

namespace nereus {

namespace {

constexpr int kMostNesting = 50;
constexpr int kMostValues = 100'000;
constexpr int kMostDocuments = 100;

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

// Takes no notice of what a document holds.
class Ignore final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// At a comma, say, that begins nothing, yaml-cpp 0.7 finds one empty document after the other, for
// ever.
void verify_that_it_ends(const std::string& text, const std::string& where) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Ignore ignore;
  for (int documents = 0; parser.HandleNextDocument(ignore); ++documents) {
    if (documents < kMostDocuments) continue;
    refuse(where, YAML::Mark::null_mark(),
           "not valid YAML: it falls into more than " + std::to_string(kMostDocuments) +
               " documents; a , ] or } may stand where nothing was begun");
  }
}

}  // namespace

YAML::Node load_yaml(const std::string& text, const std::string& where) {
  if (text.size() > kMostYamlBytes) {
    refuse(where, YAML::Mark::null_mark(),
           std::to_string(text.size()) + " bytes of YAML; at most " +
               std::to_string(kMostYamlBytes) + " are legal");
  }
  YAML::Node root;
  try {
    verify_that_it_ends(text, where);
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
