// Reads cases of adt::ImageFiller from a file and writes the elements of each, as raw bytes. A case
// is numbers as text, then the bytes of its buffers, each of which gets memory of exactly its size:
//
//   yuv|pixels COLOR WIDTH HEIGHT  FIT ROTATION LEFT TOP WIDTH HEIGHT BORDER
//   LAYOUT CHANNELS_AS HEIGHT WIDTH SCALE MEAN STD TYPE  BUFFERS SIZE…
//   PLANES (BUFFER OFFSET BYTES ROW_STRIDE PIXEL_STRIDE)…
//
// What is refused is written as text: the problem, a line's end, the remedy, in place of elements.
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "adt/image.h"

namespace {

void Put(char mark, const void* data, std::size_t bytes) {
  std::cout << mark << ' ' << bytes << '\n';
  std::cout.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

template <typename T, typename Image>
void Fill(adt::ImageFiller& filler, const adt::ImageFormat& format, const Image& image,
          const adt::ImagePlacement& placement) {
  std::vector<T> input(format.height * format.width * format.channels());
  try {
    filler.Fill(image, input, placement);
    Put('=', input.data(), input.size() * sizeof(T));
  } catch (const adt::Error& error) {
    const std::string text = error.what() + std::string("\n") + error.remedy();
    Put('!', text.data(), text.size());
  }
}

template <typename Image>
void Fill(const std::string& type, const adt::ImageFormat& format, const Image& image,
          const adt::ImagePlacement& placement) {
  adt::ImageFiller filler(format);
  if (type == "float32") Fill<float>(filler, format, image, placement);
  if (type == "float16") Fill<adt::Float16>(filler, format, image, placement);
  if (type == "uint8") Fill<std::uint8_t>(filler, format, image, placement);
}

template <typename T>
T Number(std::istream& in) {
  T number{};
  in >> number;
  return number;
}

bool Case(std::istream& in) {
  std::string kind;
  if (!(in >> kind)) return false;
  const auto size = [&] { return Number<std::size_t>(in); };
  adt::YuvImage yuv;
  yuv.color = static_cast<adt::YuvColor>(size());
  yuv.width = size();
  yuv.height = size();
  adt::ImagePlacement placement;
  placement.fit = static_cast<adt::Fit>(size());
  placement.rotation = Number<int>(in);
  placement.crop.left = size();
  placement.crop.top = size();
  placement.crop.width = size();
  placement.crop.height = size();
  placement.border = static_cast<std::uint8_t>(size());
  adt::ImageFormat format;
  format.layout = static_cast<adt::ImageLayout>(size());
  format.color = static_cast<adt::ImageColor>(size());
  format.height = size();
  format.width = size();
  in >> format.scale;
  for (float& mean : format.mean) in >> mean;
  for (float& std : format.std) in >> std;
  std::string type;
  in >> type;
  std::vector<std::size_t> sizes(size());
  for (std::size_t& bytes : sizes) bytes = size();
  struct Place {
    std::size_t buffer;
    adt::Plane plane;
    std::size_t offset;
  };
  std::vector<Place> places(size());
  for (Place& place : places) {
    place.buffer = size();
    place.offset = size();
    place.plane.bytes = size();
    place.plane.row_stride = size();
    place.plane.pixel_stride = size();
  }
  in.get();
  std::vector<std::unique_ptr<std::uint8_t[]>> buffers;
  for (const std::size_t bytes : sizes) {
    buffers.push_back(std::make_unique<std::uint8_t[]>(bytes));
    in.read(reinterpret_cast<char*>(buffers.back().get()), static_cast<std::streamsize>(bytes));
  }
  for (Place& place : places) place.plane.data = buffers[place.buffer].get() + place.offset;
  if (kind == "yuv") {
    for (std::size_t c = 0; c < 3; ++c) yuv.planes[c] = places[c].plane;
    Fill(type, format, yuv, placement);
  } else {
    const adt::Plane& plane = places[0].plane;
    Fill(type, format,
         adt::Picture{plane.data, yuv.height, yuv.width, plane.pixel_stride, plane.row_stride,
                      kind == "reversed"},
         placement);
  }
  return true;
}

}  // namespace

int main(int, char** arguments) {
  std::ifstream in(arguments[1], std::ios::binary);
  while (Case(in)) {
  }
  return in.bad() ? 1 : 0;
}
