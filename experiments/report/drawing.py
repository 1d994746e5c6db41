"""What the charts have in common."""

import io

import matplotlib
import matplotlib.pyplot as plt

matplotlib.use("Agg")  # needs no display

# Okabe and Ito's colours, which can be told apart with any kind of colour blindness.
COLORS = ["#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00"]
GREY = "#6E6E6E"
MARKERS = "osD^v"
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.bbox": "tight",
    "svg.hashsalt": "charts",
}


def save(figure, write, name):
    """Passes the figure to write(name, bytes) as SVG and PNG, and returns its name without the
    extension."""
    name = "".join(letter if letter.isalnum() else "_" for letter in name.lower())
    for ending in ("svg", "png"):
        # The date is left out, so that equal charts are equal files.
        metadata = {"Date": None} if ending == "svg" else None
        content = io.BytesIO()
        figure.savefig(content, format=ending, dpi=160, metadata=metadata)
        write(f"{name}.{ending}", content.getvalue())
    plt.close(figure)
    return name
