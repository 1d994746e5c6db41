#include "worker/trace/trace.h"

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

// Events are formatted by hand rather than by the JSON library. There are several for each layer
// and iteration, on the threads that train and exchange, and all they hold are numbers, constants
// and the layers' names, which the constructor has the library escape.

// Formats microseconds as integers, because a double has too few digits for the time since 1970.
std::string Micros(absl::Duration time) {
  const int64_t nanos = absl::ToInt64Nanoseconds(time);
  return absl::StrFormat("%d.%03d", nanos / 1000, nanos % 1000);
}

std::string Micros(absl::Time time) { return Micros(time - absl::UnixEpoch()); }

}  // namespace

absl::StatusOr<std::unique_ptr<Trace>> Trace::Create(const std::string& path, int rank,
                                                     const Model* model, const Clock* clock) {
  std::unique_ptr<Trace> trace(new Trace(path, rank, model, clock));
  absl::MutexLock lock(&trace->mutex_);
  RETURN_IF_ERROR(trace->write_status_);
  return trace;
}

Trace::Trace(const std::string& path, int rank, const Model* model, const Clock* clock)
    : path_(path), rank_(rank), clock_(clock) {
  // The names are stored as JSON strings without the quotation marks.
  for (const Layer& layer : model->layers()) {
    const std::string quoted = nlohmann::json(layer.name).dump();
    layer_names_.push_back(quoted.substr(1, quoted.size() - 2));
  }
  absl::MutexLock lock(&mutex_);
  file_ = std::fopen(path.c_str(), "we");
  NoteResult(file_ != nullptr);
  Write(absl::StrFormat(R"([{"name":"process_name","ph":"M","pid":%d,"args":{"name":"worker %d"}})",
                        rank_, rank_));
  constexpr absl::string_view kRows[] = {"training", "device", "to the device", "from the device"};
  for (size_t row = 0; row < std::size(kRows); ++row) {
    Write(
        absl::StrFormat(",\n"
                        R"({"name":"thread_name","ph":"M","pid":%d,"tid":%d,"args":{"name":"%s"}})",
                        rank_, row, kRows[row]));
  }
}

Trace::~Trace() { Close().IgnoreError(); }

void Trace::Span(Row row, absl::string_view what, int layer, int64_t iteration, absl::Time begin,
                 absl::Time end) {
  Add(row, what, layer, iteration,
      absl::StrCat(R"("ph":"X","ts":)", Micros(begin), R"(,"dur":)", Micros(end - begin)));
}

void Trace::Begin(absl::string_view what, int layer, int64_t iteration) {
  AddBeside("b", what, layer, iteration);
}

void Trace::End(absl::string_view what, int layer, int64_t iteration) {
  AddBeside("e", what, layer, iteration);
}

void Trace::AddBeside(absl::string_view phase, absl::string_view what, int layer,
                      int64_t iteration) {
  Add(Row::kThread, what, layer, iteration,
      absl::StrCat(R"("ph":")", phase, R"(","id2":{"local":")", layer, R"("},"ts":)",
                   Micros(Now())));
}

void Trace::Add(Row row, absl::string_view what, int layer, int64_t iteration,
                const std::string& rest) {
  const std::string event = absl::StrCat(
      ",\n{\"name\":\"", what, layer == kWhole ? "" : absl::StrCat(" ", layer_names_[layer]),
      R"(","cat":")", what, R"(","pid":)", rank_, R"(,"tid":)", static_cast<int>(row), ",", rest,
      R"(,"args":{"iteration":)", iteration, "}}");
  absl::MutexLock lock(&mutex_);
  Write(event);
}

absl::Status Trace::Close() {
  absl::MutexLock lock(&mutex_);
  Write("]\n");
  if (file_ != nullptr) NoteResult(std::fclose(std::exchange(file_, nullptr)) == 0);
  return write_status_;
}

void Trace::Write(absl::string_view text) {
  if (!write_status_.ok() || file_ == nullptr) return;
  NoteResult(std::fwrite(text.data(), 1, text.size(), file_) == text.size());
}

void Trace::NoteResult(bool ok) {
  if (ok) return;
  write_status_.Update(absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_)));
}

}  // namespace evenshard
