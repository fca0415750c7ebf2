"""The section of docs/performance.md about the code before: what one run measured of it and of the code now."""

from __future__ import annotations

from page_sections import Results, table

ROWS = (
    ("the demo", "demo_before_cpu_seconds", "demo_cpu_seconds", "demo_over_before", ".1f"),
    (
        "an image of ViT-B/32 in training",
        "vitb_before_seconds_per_image",
        "vitb_cached_seconds_per_image",
        "vitb_cached_over_before",
        ".3f",
    ),
)
"""What was measured; the names of its seconds before and now and of their ratio; digits."""


def before_section(results: Results) -> str:
    parts = [_seconds(results["now"]["results"]), *_products(results["now"]["details"].get("demo", {}))]
    return "\n\n".join(parts)


def _seconds(numbers: Results) -> str:
    """A run without the history has no seconds before, and no ratios; the runs of old have ratios alone."""
    rows = [
        (what, f"{numbers[then]:{digits}} s", f"{numbers[now]:{digits}} s", f"{numbers[ratio]:.2f}")
        for what, then, now, ratio, digits in ROWS
        if then in numbers
    ]
    parts = [table(("CPU seconds", "before", "now", "now / before"), rows)] if rows else []
    foreign = [f"`{ratio}`" for _, then, _, ratio, _ in ROWS if ratio in numbers and then not in numbers]
    if foreign:
        names, verb = " and ".join(foreign), "are" if foreign[1:] else "is"
        parts.append(f"The run above did not measure the code before: {names} {verb} against seconds of another run.")
    return "\n\n".join(parts) or "The run above did not measure the code before."


def _products(demo: Results) -> list[str]:
    rates = demo.get("products_gflops", {})
    if not {"torch", "onednn"} <= set(rates):
        return []
    return [
        f"On the processor of this run torch's own products reach {rates['torch']:.0f} GFLOP/s at the shape of the "
        f"demo's layers, and oneDNN's {rates['onednn']:.0f}: {rates['onednn'] / rates['torch']:.2f} times as much."
    ]
