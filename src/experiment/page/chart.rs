//! Pictures with an axis: lines over a number, and bars.

use crate::experiment::figure::{Cell, Figure, Scale};
use crate::experiment::page::axis::Axis;
use crate::experiment::page::canvas::{Canvas, Drawn, LINE, Paint, Side, fitted, svg, width_of};

/// The columns of [`Picture::Lines`](crate::Picture).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    pub(crate) series: usize,
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) interval: Option<(usize, usize)>,
    pub(crate) expected: Option<usize>,
    pub(crate) scales: (Scale, Scale),
}

/// One line.
struct Series<'a> {
    name: String,
    rows: Vec<&'a Vec<Cell>>,
}

/// The rectangle between the axes.
#[derive(Clone, Copy)]
struct Plot {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

/// Lines that a reader can tell apart in one picture.
const LINES_MAX: usize = 12;

/// Lines in a picture of this width, and its height.
pub(crate) fn lines(figure: &Figure, of: Lines, width: i32) -> Result<(String, i32), String> {
    let mut series = series_of(figure, of.series);
    let all = series.len();
    series.truncate(LINES_MAX);
    let column = |column: usize| {
        figure.rows.iter().filter_map(move |row| figure.number(row, column)).collect::<Vec<_>>()
    };
    let others = [of.interval.map(|(low, _)| low), of.interval.map(|(_, high)| high), of.expected];
    let others = others.into_iter().flatten().flat_map(column);
    let heights: Vec<f64> = column(of.y).into_iter().chain(others).collect();
    let y = Axis::new(&heights, figure.unit(of.y), of.scales.1, 7);
    let wide = column(of.x);
    let x = Axis::new(&wide, figure.unit(of.x), of.scales.0, 11).ending_at_data(&wide);
    // Names are at the ends of the lines if there is room, else over the picture.
    let widest = series.iter().map(|one| width_of(&one.name)).max().unwrap_or(0) + 26;
    let beside = widest <= width / 4;
    let over = series.iter().map(|one| &one.name[..]).filter(|_| !beside);
    let legend = rows_of_names(over, width);
    let mut notes = notes(figure, &of);
    if all > LINES_MAX {
        notes.push(format!("the first {LINES_MAX} of {all} lines; the table has all"));
    }
    let top = LINE * (legend.len() + notes.len()) as i32 + 2 * LINE;
    let labels = y.ticks.iter().map(|tick| width_of(&y.label(*tick))).max().unwrap_or(0);
    // Half of the label of the last number is right of the plot.
    let x_labels = x.ticks.iter().map(|tick| width_of(&x.label(*tick))).max().unwrap_or(0);
    let margin = (x_labels / 2 + 4).max(22);
    let plot = Plot {
        left: labels + 12,
        right: width - if beside { widest.max(margin) } else { margin },
        top,
        bottom: top + if width > 500 { 260 } else { 220 },
    };
    let y = y.between(plot.bottom, plot.top);
    let x = x.between(plot.left, plot.right).with_labels_apart();
    let height = plot.bottom + 3 * LINE;
    let text = svg((width, height), |canvas| {
        for (row, note) in notes.iter().enumerate() {
            canvas.text(note, (2, LINE * row as i32 + 10), Side::Right, Paint::Faint)?;
        }
        for (row, names) in legend.iter().enumerate() {
            let middle = LINE * (notes.len() + row) as i32 + 10;
            for (n, left) in names {
                canvas.marker(*n, (left + 7, middle))?;
                let name = fitted(&series[*n].name, width - left - 18);
                canvas.text(&name, (left + 18, middle), Side::Right, Paint::Ink)?;
            }
        }
        let title = fitted(&titled(figure.label(of.y), &y), width - 2);
        canvas.text(&title, (2, plot.top - LINE), Side::Right, Paint::Ink)?;
        let title = fitted(&titled(figure.label(of.x), &x), width - 4);
        let end = plot.right.max(width_of(&title) + 2);
        canvas.text(&title, (end, height - 10), Side::Left, Paint::Ink)?;
        grid(canvas, plot, &x, &y)?;
        for (n, one) in series.iter().enumerate() {
            draw_line(canvas, figure, &of, (n, one), (&x, &y))?;
        }
        if beside { names_beside(canvas, figure, &of, &series, plot, &y) } else { Ok(()) }
    })?;
    Ok((text, height))
}

/// The legend of dashes and strokes.
fn notes(figure: &Figure, of: &Lines) -> Vec<String> {
    let dashes = of.expected.map(|column| format!("dashed: {}", figure.label(column)));
    let strokes = of.interval.map(|_| "upright strokes: interval of the measurement".to_string());
    dashes.into_iter().chain(strokes).collect()
}

/// The words next to an axis.
fn titled(label: &str, axis: &Axis) -> String {
    let scale = if axis.is_log() { " (logarithmic)" } else { "" };
    format!("{label}{scale}")
}

/// The rows by the texts of a column, in the order of their first row.
fn series_of(figure: &Figure, column: usize) -> Vec<Series<'_>> {
    let mut all: Vec<Series<'_>> = Vec::new();
    for row in &figure.rows {
        let name = figure.text(row, column);
        match all.iter_mut().find(|one| one.name == name) {
            Some(one) => one.rows.push(row),
            None => all.push(Series { name, rows: vec![row] }),
        }
    }
    all
}

/// Names with a marker in rows, each with the pixel at which it begins.
fn rows_of_names<'n>(names: impl Iterator<Item = &'n str>, width: i32) -> Vec<Vec<(usize, i32)>> {
    let mut rows: Vec<Vec<(usize, i32)>> = Vec::new();
    let mut left = width;
    for (n, name) in names.enumerate() {
        let wide = width_of(name) + 36;
        if left + wide > width {
            rows.push(Vec::new());
            left = 0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((n, left));
        }
        left += wide;
    }
    rows
}

fn grid(canvas: &Canvas<'_>, plot: Plot, x: &Axis, y: &Axis) -> Drawn {
    for tick in &y.ticks {
        let at = y.at(*tick);
        canvas.line(&[(plot.left, at), (plot.right, at)], Paint::Grid, 1)?;
        canvas.text(&y.label(*tick), (plot.left - 6, at), Side::Left, Paint::Faint)?;
    }
    for tick in &x.ticks {
        let at = x.at(*tick);
        canvas.line(&[(at, plot.bottom), (at, plot.bottom + 5)], Paint::Ink, 1)?;
        canvas.text(&x.label(*tick), (at, plot.bottom + 15), Side::Middle, Paint::Faint)?;
    }
    canvas.line(&[(plot.left, plot.bottom), (plot.right, plot.bottom)], Paint::Ink, 1)
}

fn draw_line(
    canvas: &Canvas<'_>,
    figure: &Figure,
    of: &Lines,
    (n, series): (usize, &Series<'_>),
    (x, y): (&Axis, &Axis),
) -> Drawn {
    let points = |column: usize| -> Vec<(i32, i32)> {
        let point = |row: &&Vec<Cell>| {
            Some((x.at(figure.number(row, of.x)?), y.at(figure.number(row, column)?)))
        };
        series.rows.iter().filter_map(point).collect()
    };
    if let Some(column) = of.expected {
        canvas.line(&points(column), Paint::Dashed(n), 2)?;
    }
    if let Some((low, high)) = of.interval {
        let strokes: Vec<_> = points(low).into_iter().zip(points(high)).collect();
        let every = strokes.len().div_ceil(120).max(1);
        for ((left, low), (_, high)) in strokes.into_iter().step_by(every) {
            canvas.line(&[(left, low), (left, high)], Paint::Series(n), 2)?;
        }
    }
    let measured = points(of.y);
    canvas.line(&measured, Paint::Series(n), 2)?;
    // A curve of many points needs few markers to be told from others.
    let every = measured.len().div_ceil(24).max(1);
    measured.iter().step_by(every).try_for_each(|point| canvas.marker(n, *point))
}

/// The names next to the last points of their lines, moved apart.
fn names_beside(
    canvas: &Canvas<'_>,
    figure: &Figure,
    of: &Lines,
    series: &[Series<'_>],
    plot: Plot,
    y: &Axis,
) -> Drawn {
    let end = |one: &Series<'_>| {
        let last = one.rows.iter().rev().find_map(|row| figure.number(row, of.y));
        last.map_or(plot.bottom, |last| y.at(last))
    };
    let mut names: Vec<(i32, usize)> = series.iter().map(end).zip(0..).collect();
    names.sort_unstable();
    let apart = LINE - 2;
    for next in 1..names.len() {
        names[next].0 = names[next].0.max(names[next - 1].0 + apart);
    }
    // Those that were moved below the picture move up, and others before them.
    let mut lowest = plot.bottom;
    for name in names.iter_mut().rev() {
        name.0 = name.0.min(lowest);
        lowest = name.0 - apart;
    }
    for (at, n) in names {
        canvas.marker(n, (plot.right + 13, at))?;
        canvas.text(&series[n].name, (plot.right + 22, at), Side::Right, Paint::Ink)?;
    }
    Ok(())
}

/// The columns of [`Picture::Bars`](crate::Picture).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bars<'a> {
    pub(crate) labels: &'a [usize],
    pub(crate) values: &'a [usize],
    pub(crate) scale: Scale,
}

/// Pixels of a bar, with the gap after it.
const BAR: i32 = 17;

/// Where bars and their names are.
struct BarPlot {
    axis: Axis,
    left: i32,
    /// Whether names are over their bars, for they are long.
    is_over: bool,
    top: i32,
}

/// Bars in a picture of this width, and its height.
pub(crate) fn bars(figure: &Figure, of: Bars<'_>, width: i32) -> Result<(String, i32), String> {
    let name = |row: &Vec<Cell>| {
        let words = of.labels.iter().map(|column| figure.text(row, *column));
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ")
    };
    let names: Vec<String> = figure.rows.iter().map(name).collect();
    let is_drawn = |value: &usize| {
        figure.rows.iter().any(|row| figure.number(row, *value).is_some_and(|one| one != 0.0))
    };
    let mut values: Vec<usize> = of.values.iter().copied().filter(is_drawn).collect();
    if values.is_empty() {
        values.extend(of.values.first());
    }
    let column = |value: &usize| {
        let value = *value;
        figure.rows.iter().filter_map(move |row| figure.number(row, value))
    };
    let numbers: Vec<f64> = values.iter().flat_map(column).collect();
    let unit = values.first().map_or(figure.unit(0), |value| figure.unit(*value));
    let printed = numbers.iter().map(|number| width_of(&unit.print(*number))).max().unwrap_or(0);
    let widest = names.iter().map(|name| width_of(name)).max().unwrap_or(0);
    let is_over = widest > 2 * width / 5;
    let left = if is_over { 2 } else { widest + 12 };
    let axis = Axis::new(&numbers, unit, of.scale, if width > 500 { 8 } else { 4 });
    let axis = axis.between(left, width - printed - 16).with_labels_apart();
    // With one kind of bar the title of the axis says what it is.
    let (legend, title) = match values.as_slice() {
        [one] => (Vec::new(), titled(figure.label(*one), &axis)),
        more => {
            let names = more.iter().map(|value| figure.label(*value));
            (rows_of_names(names, width), titled("", &axis))
        }
    };
    let group = BAR * values.len() as i32 + if is_over { LINE } else { 0 } + 10;
    let plot = BarPlot { axis, left, is_over, top: LINE * legend.len() as i32 + 6 };
    let bottom = plot.top + group * names.len() as i32;
    let height = bottom + LINE + 6 + if title.is_empty() { 0 } else { LINE };
    let text = svg((width, height), |canvas| {
        for (row, names) in legend.iter().enumerate() {
            let middle = LINE * row as i32 + 9;
            for (n, left) in names {
                let corners = [(left + 2, middle - 6), (left + 14, middle + 6)];
                canvas.rectangle(corners, Paint::Series(*n), 1.0)?;
                let name = fitted(figure.label(values[*n]), width - left - 20);
                canvas.text(&name, (left + 20, middle), Side::Right, Paint::Ink)?;
            }
        }
        for tick in &plot.axis.ticks {
            let at = plot.axis.at(*tick);
            canvas.line(&[(at, plot.top), (at, bottom)], Paint::Grid, 1)?;
            let side = if is_over && at == left { Side::Right } else { Side::Middle };
            canvas.text(&plot.axis.label(*tick), (at, bottom + 12), side, Paint::Faint)?;
        }
        let title = fitted(title.trim(), width - 4);
        // A long title begins under the names.
        let begin = left.min(width - width_of(&title) - 2);
        canvas.text(&title, (begin, height - 10), Side::Right, Paint::Ink)?;
        for (place, (row, name)) in figure.rows.iter().zip(&names).enumerate() {
            let top = plot.top + group * place as i32 + 5;
            draw_group(canvas, figure, &values, (name, row), &plot, (top, width))?;
        }
        canvas.line(&[(left, plot.top), (left, bottom)], Paint::Ink, 1)
    })?;
    Ok((text, height))
}

/// The bars of a row, with their name and numbers.
fn draw_group(
    canvas: &Canvas<'_>,
    figure: &Figure,
    values: &[usize],
    (name, row): (&str, &[Cell]),
    plot: &BarPlot,
    (top, width): (i32, i32),
) -> Drawn {
    let (at, side, upper) = match plot.is_over {
        true => ((2, top + LINE / 2), Side::Right, top + LINE),
        false => ((plot.left - 8, top + BAR * values.len() as i32 / 2), Side::Left, top),
    };
    canvas.text(&fitted(name, width - 4), at, side, Paint::Ink)?;
    for (n, value) in values.iter().enumerate() {
        let number = figure.number(row, *value);
        let end = number.map_or(plot.left, |number| plot.axis.at(number));
        let (upper, lower) = (upper + BAR * n as i32, upper + BAR * (n as i32 + 1) - 2);
        canvas.rectangle([(plot.left, upper), (end, lower)], Paint::Series(n), 1.0)?;
        let text = figure.text(row, *value);
        canvas.text(&text, (end + 5, (upper + lower) / 2), Side::Right, Paint::Ink)?;
    }
    Ok(())
}
