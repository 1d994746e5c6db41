#include "common/checkpoint/initial_parameters.h"

#include <catch2/catch.hpp>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/storage/real_storage.h"
#include "common/placement/model/initializer.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

// A config whose model begins with `fields`.
std::string ConfigText(absl::string_view fields = "") {
  return absl::StrCat("model { ", fields, R"pb(
    input { channels: 2 height: 1 width: 2 }
    layer {
      name: "norm"
      batch_norm {}
    }
    layer {
      name: "fc"
      linear { out_features: 3 }
    }
  }
        partition { scheme: MEMORY_BASED }
  shard { address: "a:1" }
  update { policy: SYNC }
  training { iterations: 1 }
  compute { backend: EMULATED }
)pb");
}

struct File {
  std::string name;
  std::string dtype;
  std::string shape;
  std::string bytes;
};

std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string Safetensors(const std::vector<File>& tensors) {
  std::string header = "{";
  std::string data;
  for (const File& tensor : tensors) {
    absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", tensor.name, "\":{\"dtype\":\"",
                    tensor.dtype, "\",\"shape\":[", tensor.shape, "],\"data_offsets\":[",
                    data.size(), ",", data.size() + tensor.bytes.size(), "]}");
    data += tensor.bytes;
  }
  header += "}";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size() & 0xff);
  length[1] = static_cast<char>(header.size() >> 8);
  return length + header + data;
}

// The tensors of that model, in a file's order of its own.
std::vector<File> Whole() {
  return {{"fc/bias", "F32", "3", Bytes({1, 2, 3})},
          {"fc/weight", "F32", "3,4", Bytes({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})},
          {"norm/running_var", "F32", "2", Bytes({7, 8})},
          {"norm/running_mean", "F32", "2", Bytes({5, 6})},
          {"norm/bias", "F32", "2", Bytes({3, 4})},
          {"norm/weight", "F32", "2", Bytes({1, 2})}};
}

// A config, and a file that it names.
class Case {
 public:
  explicit Case(const std::string& file, const std::string& flags = "")
      : config_(
            *PlannedConfig::Parse(ConfigText(absl::StrCat("initial_parameters: \"",
                                                          folder_.Write("x", file), "\" ", flags)),
                                  "run.textproto")) {}

  const PlannedConfig& config() const { return config_; }
  absl::StatusOr<std::unique_ptr<const InitialParameters>> Open() {
    return InitialParameters::Open(&storage_, config_);
  }
  // Returns the error of Open without its place and the path.
  std::string Error() {
    const absl::Status status = Open().status();
    CHECK(absl::IsInvalidArgument(status));
    const std::string message(status.message());
    CHECK(absl::StartsWith(message, "run.textproto:1: model.initial_parameters: "));
    CHECK(absl::StrContains(message, folder_.Path("x")));
    return message.substr(message.find(folder_.Path("x")) + folder_.Path("x").size() + 1);
  }
  std::vector<float> Read(const std::string& tensor, int64_t begin, int64_t size) {
    const auto parameters = Open();
    INFO(parameters.status().message());
    REQUIRE(parameters.ok());
    std::vector<float> values(size, -1);
    int index = 0;
    while (config_.model().tensors()[index].name != tensor) ++index;
    const absl::Status filled = (*parameters)->Fill(index, begin, absl::MakeSpan(values));
    INFO(filled.message());
    REQUIRE(filled.ok());
    return values;
  }

 private:
  const ScratchFolder folder_;
  RealStorage storage_;
  const PlannedConfig config_;
};

TEST_CASE("any range of any tensor has the values of the file") {
  Case whole(Safetensors(Whole()));
  CHECK(whole.Read("fc/weight", 0, 12) == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(whole.Read("fc/weight", 5, 3) == std::vector<float>{5, 6, 7});
  CHECK(whole.Read("fc/bias", 2, 1) == std::vector<float>{3});
  CHECK(whole.Read("norm/running_mean", 0, 2) == std::vector<float>{5, 6});
  CHECK(whole.Read("norm/running_var", 1, 1) == std::vector<float>{8});
}

TEST_CASE("without a file the values are those of the initializer") {
  RealStorage storage;
  const PlannedConfig config = *PlannedConfig::Parse(ConfigText(), "f");
  const auto parameters = InitialParameters::Open(&storage, config);
  REQUIRE(parameters.ok());
  for (size_t i = 0; i < config.model().tensors().size(); ++i) {
    std::vector<float> values(2), expected(2);
    REQUIRE((*parameters)->Fill(static_cast<int>(i), 0, absl::MakeSpan(values)).ok());
    InitializeParameters(config.proto().training().seed(), config.model().tensors()[i], 0,
                         absl::MakeSpan(expected));
    CHECK(values == expected);
  }
}

TEST_CASE("16-bit values are widened") {
  std::vector<File> tensors = Whole();
  tensors[0] = {"fc/bias", "F16", "3", std::string("\x00\x3c\x00\xc0\x00\x38", 6)};
  tensors[4] = {"norm/bias", "BF16", "2", std::string("\x80\x3f\x20\xc1", 4)};
  Case halves(Safetensors(tensors));
  CHECK(halves.Read("fc/bias", 0, 3) == std::vector<float>{1, -2, 0.5});
  CHECK(halves.Read("fc/bias", 1, 1) == std::vector<float>{-2});
  CHECK(halves.Read("norm/bias", 0, 2) == std::vector<float>{1, -10});
}

TEST_CASE("names that do not match are named, unless the config allows them") {
  std::vector<File> tensors = Whole();
  tensors[1].name = "classifier.0.weight";
  tensors[2].name = "norm.running_var";
  const std::string missing =
      "lacks tensors of the model, allowed only with model.allow_missing_parameters: "
      "norm/running_var, fc/weight";
  const std::string unused =
      "has tensors that the model has not, allowed only with model.allow_unused_parameters: "
      "classifier.0.weight, norm.running_var";
  CHECK(Case(Safetensors(tensors)).Error() == missing + "; " + unused);
  CHECK(Case(Safetensors(tensors), "allow_missing_parameters: true").Error() == unused);
  CHECK(Case(Safetensors(tensors), "allow_unused_parameters: true").Error() == missing);
  Case both(Safetensors(tensors), "allow_missing_parameters: true allow_unused_parameters: true");
  CHECK(both.Read("fc/bias", 0, 3) == std::vector<float>{1, 2, 3});
  // What is missing begins as without a file.
  CHECK(both.Read("norm/running_var", 0, 2) == std::vector<float>{1, 1});
}

TEST_CASE("at most ten names are listed") {
  std::vector<File> tensors = Whole();
  for (int i = 10; i < 25; ++i) {
    tensors.push_back({absl::StrCat("more.", i), "F32", "1", Bytes({0})});
  }
  const std::string error = Case(Safetensors(tensors)).Error();
  CHECK(absl::EndsWith(error,
                       ": more.10, more.11, more.12, more.13, more.14, more.15, more.16, "
                       "more.17, more.18, more.19 and 5 more"));
}

TEST_CASE("shapes and types that do not fit are refused") {
  std::vector<File> tensors = Whole();
  tensors[1].shape = "4,3";
  tensors[4] = {"norm/bias", "F64", "2", Bytes({0, 0, 0, 0})};
  CHECK(Case(Safetensors(tensors)).Error() ==
        "has another shape than the model: fc/weight ([4, 3], allowed: [3, 4]); has a type other "
        "than F32, F16 and BF16: norm/bias (F64)");
}

TEST_CASE("a number that is not finite is refused with its place") {
  std::vector<File> tensors = Whole();
  tensors[0].bytes = Bytes({1, 2, std::numeric_limits<float>::quiet_NaN()});
  Case with_nan(Safetensors(tensors));
  const auto parameters = with_nan.Open();
  REQUIRE(parameters.ok());
  std::vector<float> values(2);
  const int bias = static_cast<int>(with_nan.config().model().tensors().size()) - 1;
  CHECK((*parameters)->Fill(bias, 0, absl::MakeSpan(values)).ok());
  const absl::Status status = (*parameters)->Fill(bias, 1, absl::MakeSpan(values));
  CHECK(absl::IsInvalidArgument(status));
  CHECK(absl::EndsWith(status.message(),
                       " has nan as element 2 of fc/bias, allowed: finite "
                       "numbers"));
}

TEST_CASE("a file that is no safetensors file, or a part of one, is refused") {
  const std::string whole = Safetensors(Whole());
  CHECK(Case("").Error() == "is not a whole safetensors file: it has 0 bytes");
  CHECK(Case("PK\x03\x04 and so on").Error() ==
        "is not a whole safetensors file: its header would have 7236828441365138256 bytes, "
        "allowed: at most 16000000 and the 6 that follow in the file");
  CHECK(Case(std::string(8, '\0')).Error() ==
        "is not a whole safetensors file: its header is not a JSON object");
  CHECK(absl::EndsWith(Case(whole.substr(0, whole.size() - 1)).Error(),
                       "of data: the file may be cut short"));
  for (size_t size = 0; size < whole.size(); ++size) {
    REQUIRE_FALSE(Case(whole.substr(0, size)).Open().ok());
  }
}

TEST_CASE("a header that somebody made up is refused, and says what is wrong") {
  const auto file = [](const std::string& header) {
    std::string length(8, '\0');
    for (int i = 0; i < 4; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
    return absl::StrCat(length, header, std::string(64, '\0'));
  };
  const auto tensor = [](const std::string& name, const std::string& shape, int64_t begin,
                         const std::string& end) {
    return absl::StrCat("\"", name, R"(":{"dtype":"F32","shape":[)", shape, R"(],"data_offsets":[)",
                        begin, ",", end, "]}");
  };
  const auto error = [&](const std::string& tensors) {
    return Case(file("{" + tensors + "}")).Error();
  };
  CHECK(error(tensor("a", "4", 0, "16") + "," + tensor("b", "4", 12, "28")) ==
        "is not a whole safetensors file: the tensors \"a\" and \"b\" overlap");
  CHECK(error(tensor("a", "4", 0, "16") + "," + tensor("b", "4", 0, "16")) ==
        "is not a whole safetensors file: the tensors \"a\" and \"b\" overlap");
  CHECK(absl::StrContains(error(tensor("a", "17", 0, "68")), "the file may be cut short"));
  CHECK(absl::StrContains(error(tensor("a", "4", 16, "0")), "has the data_offsets 16 and 0"));
  CHECK(absl::StrContains(error(tensor("a", "4", 0, "9223372036854775808")), "lacks a dtype"));
  // The product of the shape is 4 modulo 2^64.
  CHECK(absl::StrContains(error(tensor("a", "4611686018427387905,4", 0, "16")), "do not fit"));
  // What is nested more deeply than any header takes memory out of proportion.
  CHECK(error(R"("__metadata__":{"x":[[]]})") ==
        "is not a whole safetensors file: its header is not a JSON object");
  std::string many;
  for (int i = 0; i < 50'000; ++i)
    absl::StrAppend(&many, tensor(absl::StrCat(i), "0", 0, "0"), ",");
  CHECK(absl::StrContains(error(many + tensor("a", "4", 0, "16")), " and 49991 more"));
}

TEST_CASE("a file that is missing is an error of the field") {
  RealStorage storage;
  const ScratchFolder folder;
  const PlannedConfig config =
      *PlannedConfig::Parse(ConfigText("initial_parameters: \"none\""), folder.Path("f"));
  const absl::Status status = InitialParameters::Open(&storage, config).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == absl::StrCat(folder.Path("f"), ":1: model.initial_parameters: cannot ",
                                         "read ", folder.Path("none"),
                                         ": No such file or directory"));
}

}  // namespace
}  // namespace evenshard
