//! Pictures without an axis: boxes in lines, and steps from top to bottom.

use crate::experiment::figure::{Cell, Figure};
use crate::experiment::page::canvas::{Canvas, Drawn, LINE, Paint, Side, svg, width_of, wrapped};

/// Rows with the same text in a column that follow each other.
fn runs(figure: &Figure, column: usize) -> Vec<(String, Vec<&Vec<Cell>>)> {
    let mut runs: Vec<(String, Vec<&Vec<Cell>>)> = Vec::new();
    for row in &figure.rows {
        let name = figure.text(row, column);
        match runs.last_mut() {
            Some((last, rows)) if *last == name => rows.push(row),
            _ => runs.push((name, vec![row])),
        }
    }
    runs
}

/// The columns of [`Picture::Boxes`](crate::Picture).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boxes {
    pub(crate) group: usize,
    pub(crate) label: usize,
    pub(crate) ends: (usize, usize),
    pub(crate) shade: Option<usize>,
}

/// Boxes of one group that do not overlap, each with the shares at which it begins and ends.
type Lane<'a> = Vec<(&'a Vec<Cell>, (f64, f64))>;

/// The boxes of a group in as few lanes as are needed: those that overlap are in different ones.
fn lanes<'a>(figure: &Figure, of: &Boxes, rows: &[&'a Vec<Cell>]) -> Vec<Lane<'a>> {
    let share = |row: &Vec<Cell>, column| figure.number(row, column).unwrap_or(0.0).clamp(0.0, 1.0);
    let mut lanes: Vec<Lane<'a>> = Vec::new();
    for row in rows {
        let (from, to) = (share(row, of.ends.0), share(row, of.ends.1));
        let is_free = |lane: &&mut Lane<'a>| {
            lane.iter().all(|(_, (other_from, other_to))| *other_to <= from || to <= *other_from)
        };
        match lanes.iter_mut().find(is_free) {
            Some(lane) => lane.push((row, (from, to))),
            None => lanes.push(vec![(row, (from, to))]),
        }
    }
    lanes
}

/// Boxes in a picture of this width, and its height.
pub(crate) fn boxes(figure: &Figure, of: Boxes, width: i32) -> Result<(String, i32), String> {
    let groups = runs(figure, of.group).into_iter();
    let groups: Vec<_> = groups.map(|(name, rows)| (name, lanes(figure, &of, &rows))).collect();
    let most = groups.iter().map(|(_, lanes)| lanes.len()).max().unwrap_or(0);
    // Labels need room.
    let lane_height = if most > 8 { 10 } else { 26 };
    let shade = |row: &Vec<Cell>| of.shade.and_then(|column| figure.number(row, column));
    let darkest = figure.rows.iter().filter_map(shade).fold(0.0, f64::max);
    let opacity = |row: &Vec<Cell>| match (of.shade, shade(row)) {
        (None, _) => 0.3,
        // The lightest shade is for no number at all.
        (Some(_), None) => 0.0,
        (Some(_), Some(_)) if darkest <= 0.0 => 0.08,
        (Some(_), Some(share)) => 0.08 + 0.47 * (share / darkest).clamp(0.0, 1.0),
    };
    let shaded =
        of.shade.map_or(String::new(), |column| format!("; shade: {}", figure.label(column)));
    let note = wrapped(&format!("left to right: keys in their order{shaded}"), width - 4);
    let legend = LINE * (note.len() as i32 + i32::from(of.shade.is_some())) + 4;
    let of_group = |lanes: &[Lane<'_>]| LINE + lane_height * lanes.len() as i32 + 8;
    let height = legend + groups.iter().map(|(_, lanes)| of_group(lanes)).sum::<i32>();
    let text = svg((width, height), |canvas| {
        canvas.lines(&note, (2, 10), Side::Right, Paint::Faint)?;
        if let Some(column) = of.shade {
            let most = figure.unit(column).print(darkest);
            shades(canvas, most, LINE * note.len() as i32)?;
        }
        let mut top = legend;
        for (name, lanes) in &groups {
            canvas.text(name, (2, top + LINE / 2), Side::Right, Paint::Ink)?;
            for (lane, place) in lanes.iter().zip(0..) {
                let upper = top + LINE + lane_height * place;
                let (upper, lower) = (upper, upper + lane_height - 3);
                for (row, (from, to)) in lane {
                    let pixel = |share: &f64| 2 + (share * f64::from(width - 4)) as i32;
                    let (left, end) = (pixel(from), pixel(to));
                    // A gap, where there is room for one.
                    let right = (if end - left > 4 { end - 2 } else { end }).max(left + 1);
                    let corners = [(left, upper), (right, lower)];
                    canvas.rectangle(corners, Paint::Series(0), opacity(row))?;
                    canvas.outline(corners, Paint::Series(0))?;
                    let label = figure.text(row, of.label);
                    if lane_height > LINE && width_of(&label) + 8 <= right - left {
                        let middle = (i32::midpoint(left, right), i32::midpoint(upper, lower));
                        canvas.text(&label, middle, Side::Middle, Paint::Ink)?;
                    }
                }
            }
            top += of_group(lanes);
        }
        Ok(())
    })?;
    Ok((text, height))
}

/// The legend of the shades at this height: none, the lightest and the darkest.
fn shades(canvas: &Canvas<'_>, most: String, top: i32) -> Drawn {
    let samples = [(0.0, "none".to_string()), (0.08, "few".into()), (0.55, most)];
    let mut left = 2;
    for (opacity, text) in samples {
        let corners = [(left, top + 2), (left + 14, top + 16)];
        canvas.rectangle(corners, Paint::Series(0), opacity)?;
        canvas.outline(corners, Paint::Series(0))?;
        canvas.text(&text, (left + 20, top + 9), Side::Right, Paint::Ink)?;
        left += 34 + width_of(&text);
    }
    Ok(())
}

/// The columns of [`Picture::Steps`](crate::Picture).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    pub(crate) what: usize,
    pub(crate) answer: usize,
    pub(crate) place: usize,
    pub(crate) read: usize,
}

/// One step: what was asked and its answer in lines, and the pixels they take.
struct Step<'a> {
    row: &'a Vec<Cell>,
    what: Vec<String>,
    answer: Vec<String>,
    height: i32,
}

/// Steps in a picture of this width, and its height.
pub(crate) fn steps<'a>(
    figure: &'a Figure,
    of: Steps,
    width: i32,
) -> Result<(String, i32), String> {
    // Answers are next to what was asked, or below it where there is little room.
    let asked = figure.rows.iter().map(|row| width_of(&figure.text(row, of.what))).max();
    let answers = 34 + asked.unwrap_or(0) + 24;
    let answered = figure.rows.iter().map(|row| width_of(&figure.text(row, of.answer))).max();
    let below = answers + answered.unwrap_or(0) > width;
    let step = |row: &'a Vec<Cell>| {
        let [what, answer] = [of.what, of.answer].map(|column| figure.text(row, column));
        let [what, answer] = [what, answer].map(|text| wrapped(&text, width - 44));
        let lines = if below { what.len() + answer.len() } else { 1 };
        Step { row, what, answer, height: LINE * lines as i32 + if below { 4 } else { 6 } }
    };
    let places = runs(figure, of.place).into_iter().map(|(name, rows)| {
        (wrapped(&name, width - 20), rows.into_iter().map(step).collect::<Vec<_>>())
    });
    let places: Vec<_> = places.collect();
    let of_place = |(name, steps): &(Vec<String>, Vec<Step<'_>>)| {
        LINE * name.len() as i32 + 12 + steps.iter().map(|step| step.height).sum::<i32>()
    };
    let legend = LINE + 8;
    let height = legend + places.iter().map(of_place).sum::<i32>();
    let text = svg((width, height), |canvas| {
        canvas.circle((8, 10), 5, Paint::Series(1), true)?;
        canvas.text("read from a file", (20, 10), Side::Right, Paint::Faint)?;
        let second = 40 + width_of("read from a file");
        canvas.circle((second, 10), 5, Paint::Series(0), false)?;
        canvas.text("in memory", (second + 12, 10), Side::Right, Paint::Faint)?;
        let mut top = legend;
        for place in &places {
            let bottom = top + of_place(place) - 6;
            canvas.outline([(1, top), (width - 2, bottom)], Paint::Grid)?;
            let (name, steps) = place;
            for (line, row) in name.iter().zip(0..) {
                let at = (10, top + LINE * row + LINE / 2 + 3);
                canvas.bold(line, at, Side::Right, Paint::Ink)?;
            }
            let mut middle = top + LINE * name.len() as i32 + 14;
            for (number, step) in steps.iter().enumerate() {
                if number + 1 < steps.len() {
                    let line = [(18, middle + 5), (18, middle + step.height - 5)];
                    canvas.line(&line, Paint::Grid, 2)?;
                }
                match figure.number(step.row, of.read) {
                    Some(bytes) if bytes > 0.0 => {
                        canvas.circle((18, middle), 5, Paint::Series(1), true)?;
                    }
                    Some(_) => canvas.circle((18, middle), 5, Paint::Series(0), false)?,
                    // Not touched at all.
                    None => canvas.line(&[(14, middle), (22, middle)], Paint::Faint, 2)?,
                }
                canvas.lines(&step.what, (34, middle), Side::Right, Paint::Ink)?;
                let at = match below {
                    true => (34, middle + LINE * step.what.len() as i32 - 1),
                    false => (answers, middle),
                };
                canvas.lines(&step.answer, at, Side::Right, Paint::Faint)?;
                middle += step.height;
            }
            top = bottom + 6;
        }
        Ok(())
    })?;
    Ok((text, height))
}
