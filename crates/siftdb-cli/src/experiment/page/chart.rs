//! Pictures with an axis: lines over a number, and bars.

use crate::experiment::figure::{Cell, Figure, Picture, Scale};
use crate::experiment::page::axis::Axis;
use crate::experiment::page::markup::{escaped, legend, note, percent, series, widest};
use std::fmt::Write as _;

/// The markers of series, referred to by their number: five shapes, so that lines differ without
/// color. A document has them once.
pub(crate) const MARKERS: &str = "<svg class=\"markers\" aria-hidden=\"true\"><defs>\n\
    <circle id=\"m0\" r=\"4\"/>\n\
    <rect id=\"m1\" x=\"-4\" y=\"-4\" width=\"8\" height=\"8\"/>\n\
    <polygon id=\"m2\" points=\"0,-5 5,4 -5,4\"/>\n\
    <polygon id=\"m3\" points=\"0,-6 6,0 0,6 -6,0\"/>\n\
    <circle id=\"m4\" class=\"hollow\" r=\"4\"/>\n\
    </defs></svg>\n";

/// Markers of [`MARKERS`].
const MARKER_SHAPES: usize = 5;

/// Lines that a reader can tell apart in one picture.
const LINES_MAX: usize = 12;

/// Markers of a line, at most: a curve of many points needs few to be told from others.
const MARKERS_MAX: usize = 24;

/// The same for strokes of an interval.
const STROKES_MAX: usize = 120;

/// The names of lines on a page. A name has the same color and marker in all figures, as a line and
/// as a bar.
pub(crate) struct Names(Vec<(&'static str, String)>);

impl Names {
    pub(crate) fn of(figures: &[Figure]) -> Self {
        let mut names = Vec::new();
        for figure in figures {
            let Picture::Lines { series, .. } = figure.picture else { continue };
            for (name, _) in figure.groups(series).into_iter().take(LINES_MAX) {
                let name = (figure.label(series), name);
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        Names(names)
    }

    /// The number of a name among those of its kind, such as layouts.
    fn number(&self, figure: &Figure, column: usize, name: &str) -> Option<usize> {
        let kind = figure.label(column);
        self.0.iter().filter(|(of, _)| *of == kind).position(|(_, other)| other == name)
    }
}

/// The rows of a line, after its name.
type Rows<'a> = (String, Vec<&'a Vec<Cell>>);

/// A line of the class `class` between two points, in shares of the plot.
fn stroke(out: &mut String, class: &str, ends: [(f64, f64); 2]) {
    let [[x1, y1], [x2, y2]] = ends.map(|(x, y)| [percent(x), percent(1.0 - y)]);
    let _ =
        writeln!(out, "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>");
}

/// The class of a tick: narrow windows show every second label.
fn tick_class(place: usize) -> &'static str {
    if place % 2 == 1 { "wide" } else { "tick" }
}

/// The lines of a figure with a picture of them.
pub(crate) fn lines(figure: &Figure, names: &Names) -> String {
    let Picture::Lines { series: name, x, y, interval, expected, x_scale, y_scale } =
        figure.picture
    else {
        return String::new();
    };
    let mut all = figure.groups(name);
    let count = all.len();
    all.truncate(LINES_MAX);
    let ends = interval.map(|(low, high)| [low, high]);
    let heights = ends.iter().flatten().chain(&expected).chain([&y]);
    let heights: Vec<f64> = heights.flat_map(|column| figure.numbers(*column)).collect();
    let widths: Vec<f64> = figure.numbers(x).collect();
    let height = Axis::new(&heights, figure.unit(y), y_scale, 7);
    let width = Axis::new(&widths, figure.unit(x), x_scale, 11);
    let width = width.ending_at_data(&widths).with_labels_apart(86);
    let mut out = notes(figure, count);
    let numbered: Vec<(usize, Rows<'_>)> = all
        .into_iter()
        .enumerate()
        .map(|(n, (text, rows))| (names.number(figure, name, &text).unwrap_or(n), (text, rows)))
        .collect();
    out += &legend(numbered.iter().map(|(n, (name, _))| {
        let marker = n % MARKER_SHAPES;
        let sample = format!("<svg><use href=\"#m{marker}\" x=\"50%\" y=\"50%\"/></svg>");
        (series(*n), sample, name)
    }));
    let labels: Vec<String> = height.ticks.iter().map(|tick| height.label(*tick)).collect();
    let _ = write!(
        out,
        "<p>{}</p>\n<svg class=\"plot\" style=\"--left:{}\">\n",
        escaped(&height.titled(figure.label(y))),
        widest(labels.iter().map(String::as_str))
    );
    grid(&mut out, &width, &height);
    for (n, (_, rows)) in numbered {
        let points = |column: usize| -> Points {
            let point = |row: &&Vec<Cell>| {
                let (x, y) = (figure.number(row, x)?, figure.number(row, column)?);
                Some((width.at(x), height.at(y)))
            };
            rows.iter().filter_map(point).collect()
        };
        let strokes = interval.map(|(low, high)| [points(low), points(high)]);
        draw_series(&mut out, n, &points(y), expected.map(points), strokes);
    }
    let title = escaped(&width.titled(figure.label(x)));
    out + &format!("</svg>\n<p class=\"right\">{title}</p>\n")
}

/// Positions on both axes of a plot, as `Axis::at` gives them.
type Points = Vec<(f64, f64)>;

/// A line with its markers, the dashed line that is expected, and the strokes of its interval.
fn draw_series(
    out: &mut String,
    number: usize,
    measured: &[(f64, f64)],
    expected: Option<Points>,
    interval: Option<[Points; 2]>,
) {
    let _ = writeln!(out, "<g style=\"{}\">", series(number));
    // Only lines are stretched to the size of the plot: strokes and markers keep theirs.
    out.push_str("<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">\n");
    if let Some(points) = expected {
        polyline(out, "dashed", &points);
    }
    polyline(out, "measured", measured);
    out.push_str("</svg>\n");
    let [low, high] = interval.unwrap_or_default();
    let every = low.len().div_ceil(STROKES_MAX).max(1);
    for (low, (_, high)) in low.into_iter().zip(high).step_by(every) {
        stroke(out, "stroke", [low, (low.0, high)]);
    }
    let every = measured.len().div_ceil(MARKERS_MAX).max(1);
    for (x, y) in measured.iter().step_by(every) {
        let (marker, x, y) = (number % MARKER_SHAPES, percent(*x), percent(1.0 - y));
        let _ = writeln!(out, "<use href=\"#m{marker}\" x=\"{x}\" y=\"{y}\"/>");
    }
    out.push_str("</g>\n");
}

/// The legend of dashes and strokes, and what is left out of `count` lines.
fn notes(figure: &Figure, count: usize) -> String {
    let Picture::Lines { interval, expected, .. } = figure.picture else { return String::new() };
    let dashes = expected.map(|column| format!("dashed: {}", figure.label(column)));
    let strokes = interval.map(|_| "upright strokes: interval of the measurement".to_string());
    let left_out = (count > LINES_MAX)
        .then(|| format!("the first {LINES_MAX} of {count} lines; the table has all"));
    let notes = [dashes, strokes, left_out].into_iter().flatten();
    notes.map(|text| note(&text)).collect()
}

/// A line through points, which are shares of the plot.
fn polyline(out: &mut String, class: &str, points: &[(f64, f64)]) {
    let thousandths = |(x, y): &(f64, f64)| format!("{:.1},{:.1}", 1e3 * x, 1e3 - 1e3 * y);
    let points: Vec<String> = points.iter().map(thousandths).collect();
    let _ = writeln!(out, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
}

fn grid(out: &mut String, x: &Axis, y: &Axis) {
    for tick in &y.ticks {
        let at = y.at(*tick);
        stroke(out, "grid", [(0.0, at), (1.0, at)]);
        let (at, label) = (percent(1.0 - at), escaped(&y.label(*tick)));
        let _ = writeln!(out, "<text class=\"y\" x=\"-6\" y=\"{at}\">{label}</text>");
    }
    for (place, tick) in x.ticks.iter().enumerate() {
        let at = x.at(*tick);
        stroke(out, "axis", [(at, 0.0), (at, -0.02)]);
        let (at, label, class) = (percent(at), escaped(&x.label(*tick)), tick_class(place));
        let _ = writeln!(
            out,
            "<text class=\"x {class}\" x=\"{at}\" y=\"100%\" dy=\"1.5em\">{label}</text>"
        );
    }
    stroke(out, "axis", [(0.0, 0.0), (1.0, 0.0)]);
    // Two slanted strokes are a break.
    for at in y.break_at().into_iter().flat_map(|at| [at - 0.008, at + 0.008]) {
        stroke(out, "axis", [(-0.008, at - 0.01), (0.008, at + 0.01)]);
    }
    for at in x.break_at().into_iter().flat_map(|at| [at - 0.004, at + 0.004]) {
        stroke(out, "axis", [(at - 0.005, -0.02), (at + 0.005, 0.02)]);
    }
}

/// The bars of a figure with a picture of them.
pub(crate) fn bars(figure: &Figure, names: &Names) -> String {
    let Picture::Bars { labels, interval, .. } = &figure.picture else {
        return String::new();
    };
    let values = drawn_values(figure);
    let ends = interval.map(|(low, high)| [low, high]);
    let numbers = values.iter().chain(ends.iter().flatten());
    let numbers: Vec<f64> = numbers.flat_map(|column| figure.numbers(*column)).collect();
    let unit = values.first().map_or(figure.unit(0), |value| figure.unit(*value));
    let axis = Axis::new(&numbers, unit, Scale::Linear, 7).with_labels_apart(50);
    // Rows that all have a color of their own on the page have bars of different shades.
    let color = |row: &Vec<Cell>| match labels[..] {
        [label] => names.number(figure, label, &figure.text(row, label)),
        _ => None,
    };
    let colors: Option<Vec<usize>> = figure.rows.iter().map(color).collect();
    let shade = |n: usize| format!("--o:{:.2}", 1.0 - 0.8 * n as f64 / values.len() as f64);
    let style = |place: usize, n: usize| match &colors {
        None => series(n),
        Some(colors) => format!("{};{}", series(colors[place]), shade(n)),
    };
    // With one kind of bar the title of the axis says what it is.
    let (mut out, title) = match values[..] {
        [one] => {
            let more = interval.map_or("", |_| ", with its interval as a line");
            (String::new(), format!("{}{more}", figure.label(one)))
        }
        _ => {
            let samples = values.iter().enumerate().map(|(n, value)| {
                let style = match colors {
                    None => series(n),
                    Some(_) => format!("--c:var(--ink);{}", shade(n)),
                };
                (style, "<b class=\"swatch\"></b>".to_string(), figure.label(*value))
            });
            (legend(samples), String::new())
        }
    };
    let row_names: Vec<String> = figure.rows.iter().map(|row| name(figure, labels, row)).collect();
    let printed: Vec<String> = numbers.iter().map(|number| unit.print(*number)).collect();
    let _ = writeln!(
        out,
        "<div class=\"rows\" style=\"--names:min({}, 40%);--numbers:{}\">",
        widest(row_names.iter().map(String::as_str)),
        widest(printed.iter().map(String::as_str))
    );
    bar_grid(&mut out, &axis);
    for (place, (row, name)) in figure.rows.iter().zip(&row_names).enumerate() {
        let _ = writeln!(out, "<div class=\"row\"><div>{}</div><div>", escaped(name));
        for (n, value) in values.iter().enumerate() {
            let interval = interval.filter(|_| n == 0);
            bar(&mut out, figure, &axis, row, (*value, interval), &style(place, n));
        }
        out += "</div></div>\n";
    }
    out + &format!("</div>\n<p class=\"title\">{}</p>\n", escaped(&title))
}

/// The words that name a row.
fn name(figure: &Figure, labels: &[usize], row: &[Cell]) -> String {
    let words = labels.iter().map(|column| figure.text(row, *column));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The columns of values other than 0, or the first one.
fn drawn_values(figure: &Figure) -> Vec<usize> {
    let Picture::Bars { values, .. } = &figure.picture else { return Vec::new() };
    let is_drawn = |value: &&usize| figure.numbers(**value).any(|number| number != 0.0);
    let drawn: Vec<usize> = values.iter().filter(is_drawn).copied().collect();
    if drawn.is_empty() { values.first().copied().into_iter().collect() } else { drawn }
}

/// The lines behind bars, with their numbers.
fn bar_grid(out: &mut String, axis: &Axis) {
    out.push_str("<div class=\"grid\">\n");
    for (place, tick) in axis.ticks.iter().enumerate() {
        let (at, label) = (percent(axis.at(*tick)), escaped(&axis.label(*tick)));
        let class = tick_class(place);
        let _ = writeln!(out, "<i style=\"left:{at}\"><span class=\"{class}\">{label}</span></i>");
    }
    out.push_str("</div>\n");
}

/// The bar of a column, its number, and the line of its interval.
fn bar(
    out: &mut String,
    figure: &Figure,
    axis: &Axis,
    row: &[Cell],
    (value, interval): (usize, Option<(usize, usize)>),
    style: &str,
) {
    let at = |column| figure.number(row, column).map(|number| axis.at(number));
    let end = at(value).unwrap_or(0.0);
    let _ = write!(out, "<div style=\"{style}\"><b style=\"width:{}\"></b>", percent(end));
    let interval = interval.and_then(|(low, high)| at(low).zip(at(high)));
    if let Some((low, high)) = interval {
        let (low, length) = (percent(low), percent((high - low).max(0.0)));
        let _ = write!(out, "<i style=\"left:{low};width:{length}\"></i>");
    }
    let right = percent(interval.map_or(end, |(_, high)| high.max(end)));
    let number = escaped(&figure.text(row, value));
    let _ = writeln!(out, "<span style=\"left:{right}\">{number}</span></div>");
}
