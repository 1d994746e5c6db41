#include "tools/psctl/advice/advice_chart.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/text.h"
#include "tools/psctl/advice/advice_text.h"

namespace evenshard {
namespace {

// Sizes in pixels.
constexpr int kWidth = 820;
constexpr int kNameWidth = 320;
constexpr int kBarWidth = 380;
constexpr int kRow = 22;
constexpr int kBar = 15;
constexpr int kTop = 46;
constexpr int kGap = 34;  // above a group
constexpr size_t kShown = 16;

constexpr char kSameColor[] = "#4e79a7";
constexpr char kChosenColor[] = "#e15759";
constexpr char kChangedColor[] = "#b6992d";

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(Printable(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// Draws rows from the top down.
class Chart {
 public:
  explicit Chart(double most) : most_(most) {}

  void AddTitle(const std::string& title) {
    AddText(16, 24, 14, "start", title);
    y_ = kTop;
  }

  void AddGroup(const std::string& heading) {
    y_ += kGap - kRow;
    AddText(16, y_ + kBar - 3, 12, "start", heading);
    y_ += kRow;
  }

  void AddBar(const Choice& choice, const char* color) {
    const double length = choice.images_per_second / most_ * kBarWidth;
    AddText(kNameWidth - 8, y_ + kBar - 3, 12, "end", NameOf(choice.candidate));
    absl::StrAppendFormat(&body_,
                          "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n",
                          kNameWidth, y_, length, kBar, color);
    AddText(kNameWidth + length + 6, y_ + kBar - 3, 12, "start",
            FormatRate(choice.images_per_second));
    y_ += kRow;
  }

  std::string ToString() const {
    const int height = y_ + 16;
    return absl::StrFormat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n%s</svg>\n",
        kWidth, height, kWidth, height, kWidth, height, body_);
  }

 private:
  void AddText(double x, int y, int size, const char* anchor, const std::string& text) {
    absl::StrAppendFormat(
        &body_, "<text x=\"%.1f\" y=\"%d\" font-size=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y,
        size, anchor, Escaped(text));
  }

  const double most_;  // images per second of the longest bar
  int y_ = 0;
  std::string body_;
};

}  // namespace

std::string AdviceChart(const AdviceCluster& cluster, const Advice& advice) {
  double most = advice.same.front().images_per_second;
  if (!advice.changed.empty()) most = std::max(most, advice.changed.front().images_per_second);
  Chart chart(most);
  chart.AddTitle(absl::StrCat("images/s predicted: ", ClusterText(cluster)));
  chart.AddGroup("Computes what SYNC in float32 does");
  for (size_t i = 0; i < advice.same.size(); ++i) {
    const bool is_chosen = static_cast<int>(i) == advice.chosen;
    const bool is_alone = advice.same[i].candidate.kind == Candidate::Kind::kAlone;
    if (i < kShown || is_chosen || is_alone)
      chart.AddBar(advice.same[i], is_chosen ? kChosenColor : kSameColor);
  }
  if (!advice.changed.empty()) chart.AddGroup("Computes something else");
  for (size_t i = 0; i < std::min(advice.changed.size(), kShown); ++i) {
    chart.AddBar(advice.changed[i], kChangedColor);
  }
  return chart.ToString();
}

}  // namespace evenshard
