// "adt.layout_differences.<plugin>": where the tree's headers, which this plugin was compiled with,
// and the loaded wheel disagree about an object's fields, as "type.field: how"; empty when all is
// well.
//
// The wheel carries no headers of the compiler. It registers place and type of every field with
// tvm-ffi, which is what is compared here, for what code generators read and the visitors walk
// through.
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>
#include <tvm/relax/attrs/datatype.h>
#include <tvm/relax/attrs/manipulate.h>
#include <tvm/relax/attrs/nn.h>
#include <tvm/relax/attrs/statistical.h>
#include <tvm/relax/expr.h>
#include <tvm/relax/struct_info.h>

#include <cstring>
#include <string>

namespace {

namespace ffi = tvm::ffi;

class Comparison {
 public:
  template <typename Node, typename Field>
  void Check(const char* name, Field Node::* field) {
    const std::string key = Node::_type_key;
    const std::string full = key + "." + name + ": ";
    const TVMFFIByteArray key_bytes{key.data(), key.size()};
    int32_t index = 0;
    if (TVMFFITypeKeyToIndex(&key_bytes, &index) != 0) {
      TVMFFIObjectHandle error = nullptr;
      TVMFFIErrorMoveFromRaised(&error);
      if (error != nullptr) TVMFFIObjectDecRef(error);
      found_.push_back(ffi::String(full + "the wheel has no such type"));
      return;
    }
    const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(index);
    for (int32_t i = 0; i < info->num_fields; ++i) {
      const TVMFFIFieldInfo& known = info->fields[i];
      if (std::string(known.name.data, known.name.size) != name) continue;
      const int64_t ours = ffi::reflection::GetFieldByteOffsetToObject(field);
      if (known.offset != ours || known.size != static_cast<int64_t>(sizeof(Field))) {
        found_.push_back(ffi::String(full + "at " + std::to_string(known.offset) + ", " +
                                     std::to_string(known.size) + " bytes in the wheel, at " +
                                     std::to_string(ours) + ", " + std::to_string(sizeof(Field)) +
                                     " bytes in the tree"));
      } else if (Schema(known) != ffi::details::TypeSchema<Field>::v()) {
        found_.push_back(ffi::String(full + Schema(known) + " in the wheel, " +
                                     ffi::details::TypeSchema<Field>::v() + " in the tree"));
      }
      return;
    }
    found_.push_back(ffi::String(full + "the wheel has no such field"));
  }

  ffi::Array<ffi::String> found() const { return found_; }

 private:
  // The field's type, as tvm-ffi describes types.
  static std::string Schema(const TVMFFIFieldInfo& field) {
    const ffi::String metadata(field.metadata.data, field.metadata.size);
    const auto object = ffi::json::Parse(metadata).cast<ffi::json::Object>();
    return object[ffi::String("type_schema")].cast<std::string>();
  }

  ffi::Array<ffi::String> found_;
};

ffi::Array<ffi::String> Differences() {
  using namespace tvm::relax;
  Comparison compare;
  compare.Check("op", &CallNode::op);
  compare.Check("args", &CallNode::args);
  compare.Check("attrs", &CallNode::attrs);
  compare.Check("sinfo_args", &CallNode::sinfo_args);
  compare.Check("fields", &TupleNode::fields);
  compare.Check("index", &TupleGetItemNode::index);
  compare.Check("values", &ShapeExprNode::values);
  compare.Check("vid", &VarNode::vid);
  compare.Check("data", &ConstantNode::data);
  compare.Check("var", &BindingNode::var);
  compare.Check("value", &VarBindingNode::value);
  compare.Check("bindings", &BindingBlockNode::bindings);
  compare.Check("blocks", &SeqExprNode::blocks);
  compare.Check("body", &SeqExprNode::body);
  compare.Check("params", &FunctionNode::params);
  compare.Check("body", &FunctionNode::body);
  compare.Check("ret_struct_info", &FunctionNode::ret_struct_info);
  compare.Check("global_symbol", &ExternFuncNode::global_symbol);
  compare.Check("shape", &TensorStructInfoNode::shape);
  compare.Check("dtype", &TensorStructInfoNode::dtype);
  compare.Check("ndim", &TensorStructInfoNode::ndim);
  compare.Check("fields", &TupleStructInfoNode::fields);
  compare.Check("value", &tvm::IntImmNode::value);
  compare.Check("strides", &Conv2DAttrs::strides);
  compare.Check("padding", &Conv2DAttrs::padding);
  compare.Check("groups", &Conv2DAttrs::groups);
  compare.Check("pool_size", &Pool2DAttrs::pool_size);
  compare.Check("strides", &Pool2DAttrs::strides);
  compare.Check("padding", &Pool2DAttrs::padding);
  compare.Check("axis", &BatchNormAttrs::axis);
  compare.Check("epsilon", &BatchNormAttrs::epsilon);
  compare.Check("center", &BatchNormAttrs::center);
  compare.Check("scale", &BatchNormAttrs::scale);
  compare.Check("pad_width", &PadAttrs::pad_width);
  compare.Check("axes", &PermuteDimsAttrs::axes);
  compare.Check("dtype", &AstypeAttrs::dtype);
  compare.Check("axis", &StatisticalAttrs::axis);
  compare.Check("keepdims", &StatisticalAttrs::keepdims);
  return compare.found();
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("adt.layout_differences." ADT_PLUGIN, Differences);
}
