//! The surface of a picture: an SVG of plotters, in colors that the page's style sheet decides.
//!
//! plotters writes fixed colors. So each [`Paint`] is drawn in a color that nothing else has, and
//! [`svg`] replaces it by a variable of the style sheet, which differs between light and dark.
//! Coordinates and sizes are pixels of CSS.

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, IntoTextStyle, RGBColor, ShapeStyle};

/// The parts of a drawing by meaning; the style sheet has a color for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// Text and outlines.
    Ink,
    /// Less important text.
    Faint,
    /// Lines of a grid.
    Grid,
    /// The background of the picture.
    Paper,
    /// A series, by its position.
    Series(usize),
    /// Lines of a series that is expected, not measured.
    Dashed(usize),
}

/// Colors of series in the style sheet; then they repeat, with other markers.
const SERIES_COLORS: usize = 6;

/// Pixels of an ordinary text.
pub(crate) const TEXT: f64 = 13.0;
/// Pixels from one line of text to the next.
pub(crate) const LINE: i32 = 18;

impl Paint {
    /// All that can be drawn.
    fn all() -> impl Iterator<Item = Paint> {
        let series = (0..SERIES_COLORS).flat_map(|n| [Paint::Series(n), Paint::Dashed(n)]);
        [Paint::Ink, Paint::Faint, Paint::Grid, Paint::Paper].into_iter().chain(series)
    }

    fn color(self) -> RGBColor {
        match self {
            Paint::Ink => RGBColor(1, 1, 0),
            Paint::Faint => RGBColor(1, 1, 1),
            Paint::Grid => RGBColor(1, 1, 2),
            Paint::Paper => RGBColor(1, 1, 3),
            Paint::Series(n) => RGBColor(1, 2, (n % SERIES_COLORS) as u8),
            Paint::Dashed(n) => RGBColor(1, 3, (n % SERIES_COLORS) as u8),
        }
    }

    /// The value of an attribute that takes a color, and what follows it.
    fn attribute(self) -> String {
        match self {
            Paint::Ink => "\"var(--ink)\"".into(),
            Paint::Faint => "\"var(--faint)\"".into(),
            Paint::Grid => "\"var(--grid)\"".into(),
            Paint::Paper => "\"var(--paper)\"".into(),
            Paint::Series(n) => format!("\"var(--series{n})\""),
            Paint::Dashed(n) => format!("\"var(--series{n})\" stroke-dasharray=\"6 4\""),
        }
    }
}

/// Where a text is from its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It begins there.
    Right,
    /// It ends there.
    Left,
    /// Its middle is there.
    Middle,
}

/// The result of drawing.
pub(crate) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A surface to draw on.
pub(crate) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// The elements of a picture of this size, without the `svg` element around them.
///
/// # Errors
/// The failure of a drawing.
pub(crate) fn svg(
    (width, height): (i32, i32),
    draw: impl FnOnce(&Canvas<'_>) -> Drawn,
) -> Result<String, String> {
    let mut text = String::new();
    let size = (width.unsigned_abs(), height.unsigned_abs());
    let canvas = Canvas { area: SVGBackend::with_string(&mut text, size).into_drawing_area() };
    let drawn = draw(&canvas).and_then(|()| canvas.area.present());
    drop(canvas);
    drawn.map_err(|error| error.to_string())?;
    let inside = text.split_once('>').map_or("", |(_, rest)| rest).trim();
    let mut inside = inside.trim_end_matches("</svg>").trim_end().to_string();
    // What the style sheet says once, and what is the default.
    for silent in [" font-family=\"sans-serif\"", " opacity=\"1\""] {
        inside = inside.replace(silent, "");
    }
    for paint in Paint::all() {
        let RGBColor(red, green, blue) = paint.color();
        // Texts have no quotes, because plotters escapes them.
        let color = format!("\"#{red:02X}{green:02X}{blue:02X}\"");
        inside = inside.replace(&color, &paint.attribute());
    }
    Ok(inside)
}

impl Canvas<'_> {
    /// A line of text, centered at the height `y`.
    pub(crate) fn text(&self, text: &str, at: (i32, i32), side: Side, paint: Paint) -> Drawn {
        self.write(text, at, side, paint, FontStyle::Normal)
    }

    /// Lines of text below each other, the first centered at the height `y`.
    pub(crate) fn lines(
        &self,
        lines: &[String],
        (x, y): (i32, i32),
        side: Side,
        paint: Paint,
    ) -> Drawn {
        let mut places = lines.iter().zip(0..);
        places.try_for_each(|(line, row)| self.text(line, (x, y + LINE * row), side, paint))
    }

    /// A line of bold text.
    pub(crate) fn bold(&self, text: &str, at: (i32, i32), side: Side, paint: Paint) -> Drawn {
        self.write(text, at, side, paint, FontStyle::Bold)
    }

    fn write(
        &self,
        text: &str,
        at: (i32, i32),
        side: Side,
        paint: Paint,
        weight: FontStyle,
    ) -> Drawn {
        let horizontal = match side {
            Side::Right => HPos::Left,
            Side::Left => HPos::Right,
            Side::Middle => HPos::Center,
        };
        // plotters divides sizes by 1.24.
        let font = ("sans-serif", TEXT * 1.24).into_font().style(weight);
        let color = paint.color();
        let style = font.into_text_style(&self.area).color(&color);
        self.area.draw(&Text::new(text, at, style.pos(Pos::new(horizontal, VPos::Center))))
    }

    /// A line through points.
    pub(crate) fn line(&self, points: &[(i32, i32)], paint: Paint, width: u32) -> Drawn {
        let style: ShapeStyle = paint.color().into();
        self.area.draw(&PathElement::new(points.to_vec(), style.stroke_width(width)))
    }

    /// A filled rectangle, `opacity` from 0 to 1.
    pub(crate) fn rectangle(&self, corners: [(i32, i32); 2], paint: Paint, opacity: f64) -> Drawn {
        let style = paint.color().mix(opacity).filled();
        self.area.draw(&Rectangle::new(corners, style))
    }

    /// The outline of a rectangle.
    pub(crate) fn outline(&self, corners: [(i32, i32); 2], paint: Paint) -> Drawn {
        let style: ShapeStyle = paint.color().into();
        self.area.draw(&Rectangle::new(corners, style))
    }

    /// A disk or a ring.
    pub(crate) fn circle(
        &self,
        center: (i32, i32),
        radius: i32,
        paint: Paint,
        is_filled: bool,
    ) -> Drawn {
        let style: ShapeStyle = paint.color().into();
        let style = if is_filled { style.filled() } else { style.stroke_width(2) };
        self.area.draw(&Circle::new(center, radius, style))
    }

    /// The marker of the series `n`: five shapes, so that lines differ without color.
    pub(crate) fn marker(&self, n: usize, (x, y): (i32, i32)) -> Drawn {
        let polygon = |points: &[(i32, i32)]| {
            let points: Vec<_> = points.iter().map(|(right, down)| (x + right, y + down)).collect();
            self.area.draw(&Polygon::new(points, Paint::Series(n).color().filled()))
        };
        match n % 5 {
            0 => self.circle((x, y), 4, Paint::Series(n), true),
            1 => polygon(&[(-4, -4), (4, -4), (4, 4), (-4, 4)]),
            2 => polygon(&[(0, -5), (5, 4), (-5, 4)]),
            3 => polygon(&[(0, -6), (6, 0), (0, 6), (-6, 0)]),
            _ => {
                self.circle((x, y), 4, Paint::Paper, true)?;
                self.circle((x, y), 4, Paint::Series(n), false)
            }
        }
    }
}

/// About how many pixels wide a text is: no font is at hand to measure it.
pub(crate) fn width_of(text: &str) -> i32 {
    // Those of DejaVu Sans, which is wider than most fonts.
    let em = |c: char| match c {
        'i' | 'j' | 'l' => 0.28,
        'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' | '/' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '-' => 0.42,
        'c' | 'k' | 's' | 'v' | 'x' | 'y' | 'z' => 0.59,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '\u{2026}' => 1.0,
        '=' | '+' | '<' | '>' | '~' | '#' => 0.84,
        'A'..='Z' => 0.74,
        _ if c.is_ascii() => 0.64,
        // Letters of other scripts may be square.
        _ if c > '\u{2e7f}' => 1.05,
        _ => 0.7,
    };
    (text.chars().map(em).sum::<f64>() * TEXT).ceil() as i32
}

/// A text in lines of at most this many pixels, broken between words, or within longer ones.
/// Without text there is no line.
pub(crate) fn wrapped(text: &str, pixels: i32) -> Vec<String> {
    let fits = |line: &str| width_of(line.trim_end()) <= pixels;
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_inclusive(' ') {
        if !line.is_empty() && !fits(&format!("{line}{word}")) {
            lines.push(std::mem::take(&mut line));
        }
        for c in word.chars() {
            if !line.is_empty() && !fits(&format!("{line}{c}")) {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    lines.push(line);
    lines.retain(|line| !line.is_empty());
    lines.iter().map(|line| line.trim_end().to_string()).collect()
}
