#include <pybind11/embed.h>

#include "nereus/bridge/python_function.h"

#include "nereus/base/error.h"
#include "nereus/bridge/python.h"

namespace nereus {

namespace {

namespace py = pybind11;

py::object load(const std::filesystem::path& file) {
  const std::string name = file.stem().string();
  const py::module_ util = py::module_::import("importlib.util");
  const py::object spec = util.attr("spec_from_file_location")(name, file.string());
  const py::object module = util.attr("module_from_spec")(spec);
  // A dataclass or a pickle asks where it was defined.
  py::module_::import("sys").attr("modules")[name.c_str()] = module;
  py::module_::import("sys").attr("path").attr("insert")(0, file.parent_path().string());
  spec.attr("loader").attr("exec_module")(module);
  return module;
}

Json to_json(const py::handle& value) {
  if (value.is_none()) return nullptr;
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::str>(value)) return value.cast<std::string>();
  if (py::isinstance<py::dict>(value)) {
    Json object = Json::object();
    for (const auto& [key, member] : py::reinterpret_borrow<py::dict>(value)) {
      object[py::str(key).cast<std::string>()] = to_json(member);
    }
    return object;
  }
  if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
    Json list = Json::array();
    for (const py::handle element : value) list.push_back(to_json(element));
    return list;
  }
  if (py::hasattr(value, "__float__")) {
    return py::float_(py::reinterpret_borrow<py::object>(value)).cast<double>();
  }
  return py::str(value).cast<std::string>();
}

}  // namespace

struct PythonFunction::Object {
  py::object value;
};

PythonFunction::PythonFunction(const std::filesystem::path& file, const std::string& function)
    : name_(file.string() + ": " + function), function_(std::make_unique<Object>()) {
  if (!std::filesystem::is_regular_file(file)) {
    throw Error(ErrorCode::kInvalidInput, "no such file: " + file.string());
  }
  start_python();
  const py::gil_scoped_acquire gil;
  try {
    const py::object module = load(std::filesystem::absolute(file));
    if (!py::hasattr(module, function.c_str())) {
      throw Error(ErrorCode::kInvalidInput, file.string() + " has no function " + function);
    }
    function_->value = module.attr(function.c_str());
  } catch (const py::error_already_set& error) {
    throw Error(ErrorCode::kInvalidInput, file.string() + ": " + error.what());
  }
}

PythonFunction::~PythonFunction() {
  const py::gil_scoped_acquire gil;
  function_.reset();
}

Json PythonFunction::call(const Json& arguments) const {
  const py::gil_scoped_acquire gil;
  try {
    const py::object loaded = py::module_::import("json").attr("loads")(
        arguments.dump(-1, ' ', false, Json::error_handler_t::replace));
    return to_json(function_->value(**py::dict(loaded)));
  } catch (const py::error_already_set& error) {
    throw Error(ErrorCode::kInvalidInput, name_ + ": " + error.what());
  }
}

}  // namespace nereus
