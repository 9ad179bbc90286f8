// Compiled OpenCL programs of a package, kept in a file: a driver compiles its kernels once, not at
// every load.
//
// The file (all numbers little-endian):
//
//   bytes 0-7     "ADTPROG" and a zero byte
//   bytes 8-11    version of this format, 2
//   bytes 12-15   length of the key
//   bytes 16-23   length of the programs
//   bytes 24-87   SHA-256 of the programs, in hexadecimal digits
//   then          the key: one "name: value" per line (see ProgramKey)
//   then          the programs, as the runtime's opencl.GetPreCompiledPrograms gives them
//
// No trouble with the file is an error: the kernels are then compiled from their source. So they
// are where a file or a directory is another user's, or may be written by one: a driver runs what
// it is given.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/extra/module.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace adt {

/// Where the programs are kept.
struct ProgramStore {
  enum class Kind {
    kNone,       ///< nowhere
    kFile,       ///< in the file *path*
    kDirectory,  ///< in the directory *path*, in a file that is named by the key; 64 at most
  };
  Kind kind = Kind::kNone;
  std::string path;

  /// Empty when there is none.
  std::string directory() const { return kind == Kind::kDirectory ? path : std::string(); }
};

/// $ADT_PROGRAM_CACHE ("off" for nowhere), else $XDG_CACHE_HOME/adt/programs, else
/// $HOME/.cache/adt/programs; nowhere when none of them is set or can be created.
ProgramStore DefaultProgramStore();

enum class ProgramState {
  kOff,          ///< nothing was to be kept, or the package has no OpenCL kernels
  kHit,          ///< the programs came from the file
  kWritten,      ///< there was no file; it is there, once WritePrograms was called
  kRebuilt,      ///< there was a file of no use; the kernels were compiled again
  kUnsupported,  ///< the runtime or the driver does not give its programs away
};

/// "off", "hit", "written", "rebuilt" or "unsupported".
std::string_view Name(ProgramState state);

struct ProgramReport {
  ProgramState state = ProgramState::kOff;
  /// Empty when nothing was to be kept.
  std::string file;
  /// What went wrong, and what that means; empty when nothing did.
  std::string warning;
  /// Milliseconds from reading the file to programs that the driver has taken; 0 without a hit.
  double take_ms = 0;
  /// Milliseconds that taking and writing the programs took; 0 when nothing was written.
  double keep_ms = 0;
  /// The file has still to be written.
  bool pending = false;
};

/// What a program was compiled from, and what by. Another one of any part makes it foreign.
struct ProgramKey {
  /// SHA-256 of the kernels' sources.
  std::string kernels;
  std::string device;
  std::string vendor;
  std::string driver;
  std::string platform;

  std::string Text() const;
};

/// The bytes of a file.
std::string FormatPrograms(const ProgramKey& key, std::string_view programs);

/// What ParsePrograms found.
struct ParsedPrograms {
  /// Empty unless *problem* is.
  std::string programs;
  /// Why the file is of no use, as the rest of a sentence about it.
  std::string problem;
  /// It was written by FormatPrograms, whatever became of it since.
  bool ours = false;
};

/// The programs of a file's *bytes*, when they are complete, undamaged and of *key*.
ParsedPrograms ParsePrograms(std::string_view bytes, const ProgramKey& key);

/// Load a library with *load*, and give its OpenCL kernels their compiled programs from *store*.
/// When there are none that can be used, the kernels are compiled at their first call, and
/// TakePrograms gives them. *load* is called again when the driver refuses the programs. What
/// *load* throws is thrown; nothing else is.
tvm::ffi::Module LoadWithPrograms(const std::function<tvm::ffi::Module()>& load,
                                  const ProgramStore& store, DLDevice device,
                                  ProgramReport* report);

/// What a file is to hold.
struct ProgramFile {
  std::string path;
  std::string bytes;
};

/// The programs that LoadWithPrograms did not find; kernels that nobody called yet are compiled for
/// it. After a run, and not when loading: a driver such as PoCL compiles for a size of work-group
/// when it first meets it. None when there is nothing to write, or the second time. *module* is
/// what was loaded, or what was made of it. Throws nothing but std::bad_alloc.
std::optional<ProgramFile> TakePrograms(const tvm::ffi::Module& module, DLDevice device,
                                        ProgramReport* report);

/// Write the file, and remove the oldest ones beside it. Returns why that did not work; empty when
/// it did.
std::string WritePrograms(const ProgramFile& file);

/// How writing *report*'s file went.
void NoteWrite(const std::string& problem, ProgramReport* report);

}  // namespace adt
