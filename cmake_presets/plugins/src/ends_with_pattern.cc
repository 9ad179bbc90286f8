// A function that TVM's CLML code generator uses and the wheel does not export.
#include <string>

namespace tvm {
namespace relax {
namespace backend {

bool EndsWithPattern(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace backend
}  // namespace relax
}  // namespace tvm
