// The compiled OpenCL programs of one module, as TVM's opencl.GetPreCompiledPrograms gives them.
//
// opencl.SetPreCompiledPrograms takes whatever stands there: it reads on behind the end, and by the
// file's word asks for any memory.
#pragma once

#include <string_view>

namespace adt {

/// A number of programs, then the name and the binary of each, and nothing else.
bool IsProgramList(std::string_view bytes);

}  // namespace adt
