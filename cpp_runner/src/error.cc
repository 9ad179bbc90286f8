#include "error.h"

#include <utility>

namespace adt {

Error::Error(ErrorKind kind, const std::string& what, std::string remedy)
    : std::runtime_error(what), kind_(kind), remedy_(std::move(remedy)) {}

Error::~Error() = default;

}  // namespace adt
