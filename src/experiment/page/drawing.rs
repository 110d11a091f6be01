//! Pictures without an axis: boxes in lines, and steps from top to bottom.

use crate::experiment::figure::{Cell, Figure};
use crate::experiment::page::canvas::{Canvas, Drawn, LINE, Paint, Side, fitted, svg, width_of};

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
    pub(crate) size: usize,
    pub(crate) shade: Option<usize>,
}

/// Boxes in a picture of this width, and its height.
pub(crate) fn boxes(figure: &Figure, of: Boxes, width: i32) -> Result<(String, i32), String> {
    const BOX: i32 = 34;
    let lines = runs(figure, of.group);
    let size = |row: &Vec<Cell>| figure.number(row, of.size).unwrap_or(0.0).max(0.0);
    let total = |rows: &[&Vec<Cell>]| rows.iter().map(|row| size(row)).sum::<f64>();
    let largest = lines.iter().map(|(_, rows)| total(rows)).fold(0.0, f64::max);
    let shade = |row: &Vec<Cell>| of.shade.and_then(|column| figure.number(row, column));
    let darkest = figure.rows.iter().filter_map(shade).fold(0.0, f64::max);
    let opacity = |row: &Vec<Cell>| match (of.shade, shade(row)) {
        (None, _) => 0.3,
        // The lightest shade is for no number at all.
        (Some(_), None) => 0.0,
        (Some(_), Some(_)) if darkest <= 0.0 => 0.08,
        (Some(_), Some(share)) => 0.08 + 0.47 * (share / darkest).clamp(0.0, 1.0),
    };
    let legend = if of.shade.is_some() { 2 * LINE } else { 0 };
    let height = legend + (LINE + BOX + 10) * lines.len() as i32;
    let text = svg((width, height), |canvas| {
        if let Some(column) = of.shade {
            shades(canvas, figure, column, darkest, width)?;
        }
        for (place, (name, rows)) in lines.iter().enumerate() {
            let top = legend + (LINE + BOX + 10) * place as i32;
            let name = fitted(name, width - 4);
            canvas.text(&name, (2, top + LINE / 2), Side::Right, Paint::Ink)?;
            let (upper, lower) = (top + LINE, top + LINE + BOX);
            let mut before = 0.0;
            for row in rows {
                let pixel =
                    |bytes: f64| 2 + (bytes / largest.max(1.0) * f64::from(width - 4)) as i32;
                let (left, end) = (pixel(before), pixel(before + size(row)));
                before += size(row);
                // A gap, where there is room for one.
                let right = (if end - left > 4 { end - 2 } else { end }).max(left + 1);
                let corners = [(left, upper), (right, lower)];
                canvas.rectangle(corners, Paint::Series(0), opacity(row))?;
                canvas.outline(corners, Paint::Series(0))?;
                let label = figure.text(row, of.label);
                if width_of(&label) + 8 <= right - left {
                    let middle = ((left + right) / 2, (upper + lower) / 2);
                    canvas.text(&label, middle, Side::Middle, Paint::Ink)?;
                }
            }
        }
        Ok(())
    })?;
    Ok((text, height))
}

/// The legend of the shades: the darkest, the lightest and none.
fn shades(canvas: &Canvas<'_>, figure: &Figure, column: usize, darkest: f64, width: i32) -> Drawn {
    let label = figure.label(column);
    let most = figure.unit(column).print(darkest);
    let samples = [(0.0, "none".to_string()), (0.08, "few".into()), (0.55, most)];
    let mut left = 2;
    for (opacity, text) in samples {
        let corners = [(left, 4), (left + 14, 18)];
        canvas.rectangle(corners, Paint::Series(0), opacity)?;
        canvas.outline(corners, Paint::Series(0))?;
        canvas.text(&text, (left + 20, 11), Side::Right, Paint::Ink)?;
        left += 34 + width_of(&text);
    }
    canvas.text(&fitted(label, width - left), (left, 11), Side::Right, Paint::Faint)
}

/// The columns of [`Picture::Steps`](crate::Picture).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    pub(crate) what: usize,
    pub(crate) answer: usize,
    pub(crate) place: usize,
    pub(crate) read: usize,
}

/// Steps in a picture of this width, and its height.
pub(crate) fn steps(figure: &Figure, of: Steps, width: i32) -> Result<(String, i32), String> {
    let places = runs(figure, of.place);
    // Answers are next to what was asked, or below it where there is little room.
    let asked = figure.rows.iter().map(|row| width_of(&figure.text(row, of.what))).max();
    let answers = 34 + asked.unwrap_or(0) + 24;
    let answered = figure.rows.iter().map(|row| width_of(&figure.text(row, of.answer))).max();
    let below = answers + answered.unwrap_or(0) > width;
    let step = if below { 2 * LINE + 4 } else { LINE + 6 };
    let of_place = |rows: usize| LINE + 12 + step * rows as i32;
    let legend = LINE + 8;
    let height = legend + places.iter().map(|(_, rows)| of_place(rows.len())).sum::<i32>();
    let text = svg((width, height), |canvas| {
        canvas.circle((8, 10), 5, Paint::Series(1), true)?;
        canvas.text("read from a file", (20, 10), Side::Right, Paint::Faint)?;
        let second = 40 + width_of("read from a file");
        canvas.circle((second, 10), 5, Paint::Series(0), false)?;
        canvas.text("in memory", (second + 12, 10), Side::Right, Paint::Faint)?;
        let mut top = legend;
        for (name, rows) in &places {
            let bottom = top + of_place(rows.len()) - 6;
            canvas.outline([(1, top), (width - 2, bottom)], Paint::Grid)?;
            let name = fitted(name, width - 20);
            canvas.bold(&name, (10, top + LINE / 2 + 3), Side::Right, Paint::Ink)?;
            for (place, row) in rows.iter().enumerate() {
                let middle = top + LINE + 14 + step * place as i32;
                if place + 1 < rows.len() {
                    canvas.line(&[(18, middle + 5), (18, middle + step - 5)], Paint::Grid, 2)?;
                }
                match figure.number(row, of.read) {
                    Some(bytes) if bytes > 0.0 => {
                        canvas.circle((18, middle), 5, Paint::Series(1), true)?;
                    }
                    Some(_) => canvas.circle((18, middle), 5, Paint::Series(0), false)?,
                    // Not touched at all.
                    None => canvas.line(&[(14, middle), (22, middle)], Paint::Faint, 2)?,
                }
                let what = fitted(&figure.text(row, of.what), width - 44);
                canvas.text(&what, (34, middle), Side::Right, Paint::Ink)?;
                let (at, room) = match below {
                    true => ((34, middle + LINE - 1), width - 44),
                    false => ((answers, middle), width - answers),
                };
                let answer = fitted(&figure.text(row, of.answer), room);
                canvas.text(&answer, at, Side::Right, Paint::Faint)?;
            }
            top = bottom + 6;
        }
        Ok(())
    })?;
    Ok((text, height))
}
