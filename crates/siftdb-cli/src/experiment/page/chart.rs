//! Pictures with an axis: lines over a number, and bars.

use crate::experiment::figure::{Cell, Figure, Picture, Scale};
use crate::experiment::page::axis::Axis;
use crate::experiment::page::canvas::{Canvas, Drawn, LINE, Paint, Side, svg, width_of, wrapped};

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

/// The names of lines on a page. A name has the same color and marker in all figures, as a line and
/// as a bar.
pub(crate) struct Names(Vec<(&'static str, String)>);

impl Names {
    pub(crate) fn of(figures: &[Figure]) -> Self {
        let mut names = Vec::new();
        for figure in figures {
            let Picture::Lines { series, .. } = figure.picture else { continue };
            for one in series_of(figure, series).into_iter().take(LINES_MAX) {
                let name = (figure.label(series), one.name);
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

/// One line.
struct Series<'a> {
    name: String,
    /// It decides color and marker.
    number: usize,
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
pub(crate) fn lines(
    figure: &Figure,
    of: Lines,
    names: &Names,
    width: i32,
) -> Result<(String, i32), String> {
    let mut series = series_of(figure, of.series);
    let all = series.len();
    series.truncate(LINES_MAX);
    for one in &mut series {
        one.number = names.number(figure, of.series, &one.name).unwrap_or(one.number);
    }
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
    let notes: Vec<String> = notes.iter().flat_map(|note| wrapped(note, width - 4)).collect();
    let y_title = wrapped(&titled(figure.label(of.y), &y), width - 4);
    let x_title = wrapped(&titled(figure.label(of.x), &x), width - 4);
    let top = LINE * (legend.len() + notes.len() + y_title.len() + 1) as i32;
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
    let height = plot.bottom + LINE * (x_title.len() as i32 + 2);
    let text = svg((width, height), |canvas| {
        canvas.lines(&notes, (2, 10), Side::Right, Paint::Faint)?;
        draw_legend(canvas, &legend, LINE * notes.len() as i32 + 10, |n, at| {
            canvas.marker(series[n].number, at)
        })?;
        let above = plot.top - LINE * y_title.len() as i32;
        canvas.lines(&y_title, (2, above), Side::Right, Paint::Ink)?;
        let widest = x_title.iter().map(|line| width_of(line)).max().unwrap_or(0);
        let at = (plot.right.max(widest + 2), plot.bottom + 2 * LINE + 8);
        canvas.lines(&x_title, at, Side::Left, Paint::Ink)?;
        grid(canvas, plot, &x, &y)?;
        for one in &series {
            draw_line(canvas, figure, &of, one, (&x, &y))?;
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
            None => all.push(Series { name, number: all.len(), rows: vec![row] }),
        }
    }
    all
}

/// A row of a legend: names, each with the pixel at which it begins, and a number unless it goes on
/// from the row above.
type LegendRow = Vec<(Option<usize>, i32, String)>;

/// Names with room for a marker, in rows.
fn rows_of_names<'n>(names: impl Iterator<Item = &'n str>, width: i32) -> Vec<LegendRow> {
    let mut rows: Vec<LegendRow> = Vec::new();
    let mut left = width;
    for (n, name) in names.enumerate() {
        for (part, text) in wrapped(name, width - 22).into_iter().enumerate() {
            let wide = width_of(&text) + 36;
            // The gap to the next name may be outside.
            if part > 0 || left + wide - 14 > width {
                rows.push(Vec::new());
                left = 0;
            }
            if let Some(row) = rows.last_mut() {
                row.push(((part == 0).then_some(n), left, text));
            }
            left += wide;
        }
    }
    rows
}

/// The rows of a legend, the first at this height. `sample` draws the sign of a name.
fn draw_legend(
    canvas: &Canvas<'_>,
    legend: &[LegendRow],
    top: i32,
    sample: impl Fn(usize, (i32, i32)) -> Drawn,
) -> Drawn {
    for (row, middle) in legend.iter().zip((top..).step_by(LINE as usize)) {
        for (n, left, text) in row {
            n.map_or(Ok(()), |n| sample(n, (left + 8, middle)))?;
            canvas.text(text, (left + 20, middle), Side::Right, Paint::Ink)?;
        }
    }
    Ok(())
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
    canvas.line(&[(plot.left, plot.bottom), (plot.right, plot.bottom)], Paint::Ink, 1)?;
    // Two slanted strokes are a break.
    for at in y.break_at().into_iter().flat_map(|at| [at - 2, at + 2]) {
        canvas.line(&[(plot.left - 5, at + 3), (plot.left + 5, at - 3)], Paint::Ink, 1)?;
    }
    x.break_at().map_or(Ok(()), |at| break_across(canvas, at, plot.bottom))
}

/// A break in a horizontal axis at this height.
fn break_across(canvas: &Canvas<'_>, at: i32, height: i32) -> Drawn {
    let strokes = [at - 2, at + 2];
    strokes.into_iter().try_for_each(|at| {
        canvas.line(&[(at - 3, height + 5), (at + 3, height - 5)], Paint::Ink, 1)
    })
}

fn draw_line(
    canvas: &Canvas<'_>,
    figure: &Figure,
    of: &Lines,
    series: &Series<'_>,
    (x, y): (&Axis, &Axis),
) -> Drawn {
    let points = |column: usize| -> Vec<(i32, i32)> {
        let point = |row: &&Vec<Cell>| {
            Some((x.at(figure.number(row, of.x)?), y.at(figure.number(row, column)?)))
        };
        series.rows.iter().filter_map(point).collect()
    };
    let n = series.number;
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
        canvas.marker(series[n].number, (plot.right + 13, at))?;
        canvas.text(&series[n].name, (plot.right + 22, at), Side::Right, Paint::Ink)?;
    }
    Ok(())
}

/// The columns of [`Picture::Bars`](crate::Picture).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bars<'a> {
    pub(crate) labels: &'a [usize],
    pub(crate) values: &'a [usize],
    pub(crate) interval: Option<(usize, usize)>,
    pub(crate) scale: Scale,
}

/// Pixels of a bar, with the gap after it.
const BAR: i32 = 17;

/// Where bars and their names are, and their colors.
struct BarPlot {
    axis: Axis,
    left: i32,
    /// Whether names are over their bars, for they are long.
    is_over: bool,
    /// The columns of the bars, and of the interval of the first one.
    values: Vec<usize>,
    interval: Option<(usize, usize)>,
    /// The numbers of the rows, if all have a color of their own on the page.
    colors: Option<Vec<usize>>,
    top: i32,
}

impl BarPlot {
    /// The paint of the bar `n` of a row, and its opacity. Rows of different colors have bars of
    /// different shades.
    fn fill(&self, row: usize, n: usize) -> (Paint, f64) {
        match &self.colors {
            None => (Paint::Series(n), 1.0),
            Some(colors) => (Paint::Series(colors[row]), self.shade(n)),
        }
    }

    fn shade(&self, n: usize) -> f64 {
        1.0 - 0.8 * n as f64 / self.values.len() as f64
    }

    /// The paint of the bar `n` in the legend.
    fn sample(&self, n: usize) -> (Paint, f64) {
        match self.colors {
            None => (Paint::Series(n), 1.0),
            Some(_) => (Paint::Ink, self.shade(n)),
        }
    }
}

/// Bars in a picture of this width, and its height.
pub(crate) fn bars(
    figure: &Figure,
    of: Bars<'_>,
    known: &Names,
    width: i32,
) -> Result<(String, i32), String> {
    let name = |row: &Vec<Cell>| {
        let words = of.labels.iter().map(|column| figure.text(row, *column));
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ")
    };
    let names: Vec<String> = figure.rows.iter().map(name).collect();
    let values = drawn_values(figure, &of);
    let column = |value: &usize| {
        let value = *value;
        figure.rows.iter().filter_map(move |row| figure.number(row, value))
    };
    let ends = of.interval.map(|(low, high)| [low, high]);
    let numbers: Vec<f64> = values.iter().chain(ends.iter().flatten()).flat_map(column).collect();
    let unit = values.first().map_or(figure.unit(0), |value| figure.unit(*value));
    let printed = numbers.iter().map(|number| width_of(&unit.print(*number))).max().unwrap_or(0);
    let widest = names.iter().map(|name| width_of(name)).max().unwrap_or(0);
    let is_over = widest > 2 * width / 5;
    let left = if is_over { 2 } else { widest + 12 };
    let room = if is_over { width - 4 } else { left };
    let names: Vec<Vec<String>> = names.iter().map(|name| wrapped(name, room)).collect();
    let color = |row: &Vec<Cell>| match of.labels {
        [label] => known.number(figure, *label, &figure.text(row, *label)),
        _ => None,
    };
    let colors = figure.rows.iter().map(color).collect();
    let axis = Axis::new(&numbers, unit, of.scale, if width > 500 { 8 } else { 4 });
    let axis = axis.between(left, width - printed - 16).with_labels_apart();
    // With one kind of bar the title of the axis says what it is.
    let (legend, title) = match values.as_slice() {
        [one] => {
            let more = of.interval.map_or("", |_| ", with its interval as a line");
            (Vec::new(), titled(figure.label(*one), &axis) + more)
        }
        more => {
            let names = more.iter().map(|value| figure.label(*value));
            (rows_of_names(names, width), titled("", &axis))
        }
    };
    let over = |name: &Vec<String>| if is_over { LINE * name.len() as i32 } else { 0 };
    let bars = BAR * values.len() as i32 + 10;
    let top = LINE * legend.len() as i32 + 6;
    let bottom = top + names.iter().map(|name| bars + over(name)).sum::<i32>();
    let title = wrapped(title.trim(), width - 4);
    let height = bottom + LINE + 6 + LINE * title.len() as i32;
    let plot = BarPlot { axis, left, is_over, values, interval: of.interval, colors, top };
    let text = svg((width, height), |canvas| {
        draw_legend(canvas, &legend, 9, |n, (x, y)| {
            let (paint, opacity) = plot.sample(n);
            canvas.rectangle([(x - 6, y - 6), (x + 6, y + 6)], paint, opacity)
        })?;
        bar_grid(canvas, &plot, bottom)?;
        // A long title begins under the names.
        let widest = title.iter().map(|line| width_of(line)).max().unwrap_or(0);
        let at = (left.min(width - widest - 2), bottom + LINE + 14);
        canvas.lines(&title, at, Side::Right, Paint::Ink)?;
        let mut top = plot.top + 5;
        for (place, name) in names.iter().enumerate() {
            draw_group(canvas, figure, &plot, (place, name), (top, top + over(name)))?;
            top += bars + over(name);
        }
        canvas.line(&[(left, plot.top), (left, bottom)], Paint::Ink, 1)?;
        plot.axis.break_at().map_or(Ok(()), |at| break_across(canvas, at, bottom))
    })?;
    Ok((text, height))
}

/// The columns of values other than 0, or the first one.
fn drawn_values(figure: &Figure, of: &Bars<'_>) -> Vec<usize> {
    let is_drawn = |value: &usize| {
        figure.rows.iter().any(|row| figure.number(row, *value).is_some_and(|one| one != 0.0))
    };
    let mut values: Vec<usize> = of.values.iter().copied().filter(is_drawn).collect();
    if values.is_empty() {
        values.extend(of.values.first());
    }
    values
}

fn bar_grid(canvas: &Canvas<'_>, plot: &BarPlot, bottom: i32) -> Drawn {
    for tick in &plot.axis.ticks {
        let at = plot.axis.at(*tick);
        canvas.line(&[(at, plot.top), (at, bottom)], Paint::Grid, 1)?;
        let side = if plot.is_over && at == plot.left { Side::Right } else { Side::Middle };
        canvas.text(&plot.axis.label(*tick), (at, bottom + 12), side, Paint::Faint)?;
    }
    Ok(())
}

/// The bars of the row `place`, with their name and numbers. The name begins at the height `top`,
/// the bars at `upper`.
fn draw_group(
    canvas: &Canvas<'_>,
    figure: &Figure,
    plot: &BarPlot,
    (place, name): (usize, &[String]),
    (top, upper): (i32, i32),
) -> Drawn {
    let row = &figure.rows[place];
    let (at, side) = match plot.is_over {
        true => ((2, top + LINE / 2), Side::Right),
        false => ((plot.left - 8, top + BAR * plot.values.len() as i32 / 2), Side::Left),
    };
    canvas.lines(name, at, side, Paint::Ink)?;
    for (n, value) in plot.values.iter().enumerate() {
        let pixel = |column| figure.number(row, column).map(|number| plot.axis.at(number));
        let end = pixel(*value).unwrap_or(plot.left);
        let (upper, lower) = (upper + BAR * n as i32, upper + BAR * (n as i32 + 1) - 2);
        let (paint, opacity) = plot.fill(place, n);
        canvas.rectangle([(plot.left, upper), (end, lower)], paint, opacity)?;
        let middle = i32::midpoint(upper, lower);
        let ends = plot.interval.filter(|_| n == 0);
        let ends = ends.and_then(|(low, high)| pixel(low).zip(pixel(high)));
        if let Some((low, high)) = ends {
            canvas.line(&[(low, middle), (high, middle)], Paint::Ink, 2)?;
            for at in [low, high] {
                canvas.line(&[(at, middle - 4), (at, middle + 4)], Paint::Ink, 2)?;
            }
        }
        let right = ends.map_or(end, |(_, high)| high.max(end));
        canvas.text(&figure.text(row, *value), (right + 5, middle), Side::Right, Paint::Ink)?;
    }
    Ok(())
}
