#include <sstream>
#include <string>
#include <vector>

#include "nereus/app/config/describe.h"
#include "nereus/app/config/values.h"
#include "nereus/core/base/text.h"

namespace nereus {

namespace {

// Visitor: builds the YAML tree.
class Writer {
 public:
  template <class T>
  void operator()(const std::string& key, T& field, const char*) {
    YAML::Node place = root_;
    const std::vector<std::string> path = split(key, '.');
    for (size_t i = 0; i + 1 < path.size(); ++i) place.reset(place[path[i]]);
    place[path.back()] = to_node(field);
    if (place[path.back()].IsSequence()) place[path.back()].SetStyle(YAML::EmitterStyle::Flow);
  }
  const YAML::Node& root() const { return root_; }

 private:
  YAML::Node root_{YAML::NodeType::Map};
};

std::string inline_yaml(const YAML::Node& node) {
  YAML::Emitter out;
  out.SetSeqFormat(YAML::Flow);
  out.SetMapFormat(YAML::Flow);
  out << node;
  const std::string text = out.c_str();
  return text == "\"\"" || text == "~" ? "" : text;
}

// Visitor: one row of a Markdown table per option, one table per section.
class Reference {
 public:
  template <class T>
  void operator()(const std::string& key, T& field, const char* meaning) {
    const std::string section = key.substr(0, key.find('.'));
    if (section != section_) {
      out_ << "\n## " << section
           << "\n\n| key | expects | default | meaning |\n|---|---|---|---|\n";
      section_ = section;
    }
    const std::string fallback = inline_yaml(to_node(field));
    out_ << "| `" << key << "` | " << expected<T>() << " | "
         << (fallback.empty() ? "" : "`" + fallback + "`") << " | " << meaning << " |\n";
  }
  std::string text() const { return out_.str(); }

 private:
  std::ostringstream out_;
  std::string section_;
};

}  // namespace

std::string to_yaml(const Config& config) {
  Config copy = config;
  Writer writer;
  describe(copy, writer);
  YAML::Emitter out;
  out << writer.root();
  return std::string(out.c_str()) + "\n";
}

std::string config_reference() {
  Config defaults;
  Reference reference;
  describe(defaults, reference);
  return "# Options\n\nWritten by `./nereus config --markdown`. In a YAML file the dots are "
         "levels; on the "
         "command line they stay\n(`./nereus train CONFIG trainer.seed=2`). Files are looked up "
         "from the "
         "working directory, then from the\nconfig's directory and its parents.\n" +
         reference.text();
}

}  // namespace nereus
