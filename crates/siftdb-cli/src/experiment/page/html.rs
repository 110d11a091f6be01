//! The HTML of a page: one document with its style and pictures inside, which loads nothing.
//!
//! A picture is one image to those who do not see it, with a description. Its table is folded.

use crate::experiment::figure::{Figure, Picture, Unit};
use crate::experiment::page::chart::{MARKERS, Names, bars, lines};
use crate::experiment::page::drawing::{boxes, steps};
use crate::experiment::page::markup::escaped;
use crate::experiment::page::page::Page;

/// Rows of a table in the document. A reader of more computes with CSV or JSON.
const ROWS_MAX: usize = 400;

const STYLE: &str = include_str!("style.css");

impl Page {
    /// One HTML file that loads nothing, without script.
    pub fn html(&self) -> String {
        document(self)
    }
}

fn document(page: &Page) -> String {
    let title = escaped(&page.title);
    let contents: String = page
        .figures
        .iter()
        .map(|figure| {
            let (id, title) = (escaped(figure.id), escaped(&figure.title));
            format!("<li><a href=\"#{id}\">{title}</a></li>\n")
        })
        .collect();
    let fact = |(name, text): &(String, String)| {
        // A long text gets a line of its own.
        let class = if text.chars().count() > 40 { " class=\"long\"" } else { "" };
        format!("<div{class}><dt>{}</dt><dd>{}</dd></div>\n", escaped(name), escaped(text))
    };
    let facts: String = page.facts.iter().map(fact).collect();
    let contents = if page.figures.len() < 3 {
        String::new()
    } else {
        format!("<nav aria-label=\"Figures\"><ol>\n{contents}</ol></nav>\n")
    };
    let names = Names::of(&page.figures);
    let figures: String = page.figures.iter().map(|figure| figure_html(figure, &names)).collect();
    // The policy lets a browser refuse what the page does not have: scripts and requests. The icon
    // keeps it from asking a server for one.
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{MARKERS}<header>\n\
         <h1>{title}</h1>\n<p>{}</p>\n{}<dl>\n{facts}</dl>\n{contents}</header>\n\
         <main>\n{figures}</main>\n</body>\n</html>\n",
        escaped(&page.sentence),
        command_html("Make this page again", &page.command),
    )
}

fn command_html(what: &str, command: &str) -> String {
    format!("<p class=\"command\">{what}: <code>{}</code></p>\n", escaped(command))
}

fn figure_html(figure: &Figure, names: &Names) -> String {
    let id = escaped(figure.id);
    let table = table_html(figure);
    let table = match figure.picture {
        Picture::Table => table,
        _ => format!("<details><summary>The numbers</summary>\n{table}</details>\n"),
    };
    format!(
        "<figure id=\"{id}\" aria-labelledby=\"{id}-h\">\n<div class=\"picture\">\n\
         <h2 id=\"{id}-h\">{}</h2>\n<p class=\"finding\">{}</p>\n{}</div>\n{table}{}</figure>\n",
        escaped(&figure.title),
        escaped(&figure.finding),
        picture_html(figure, names),
        command_html("Again", &figure.command),
    )
}

/// The picture with its description, or a sentence in their place.
fn picture_html(figure: &Figure, names: &Names) -> String {
    let (class, inside) = match figure.picture {
        Picture::Table => return String::new(),
        _ if figure.rows.is_empty() => {
            let text = "There is nothing to draw: the table has no rows.";
            return format!("<p class=\"empty\">{text}</p>\n");
        }
        Picture::Lines { .. } => ("lines", lines(figure, names)),
        Picture::Bars { .. } => ("bars", bars(figure, names)),
        Picture::Boxes { .. } => ("boxes", boxes(figure)),
        Picture::Steps { .. } => ("steps", steps(figure)),
    };
    let (id, description) = (escaped(figure.id), escaped(&description(figure)));
    format!(
        "<div class=\"drawing {class}\" role=\"img\" aria-labelledby=\"{id}-h\" \
         aria-describedby=\"{id}-d\">\n{inside}</div>\n<p id=\"{id}-d\" hidden>{description}</p>\n"
    )
}

/// The description of a picture for readers who do not see it.
fn description(figure: &Figure) -> String {
    let label = |column: usize| figure.label(column);
    let kind = match &figure.picture {
        Picture::Lines { series, x, y, .. } => {
            format!("A line for each {}: {} over {}.", label(*series), label(*y), label(*x))
        }
        Picture::Bars { values, .. } => {
            let values = values.iter().map(|value| label(*value)).collect::<Vec<_>>();
            format!("Bars: {}.", values.join(", "))
        }
        Picture::Boxes { group, .. } => {
            format!("Boxes for each {}, along the range of keys.", label(*group))
        }
        Picture::Steps { .. } => "Steps from top to bottom.".into(),
        Picture::Table => String::new(),
    };
    format!("{} {kind} The table after the picture has the numbers.", figure.finding)
}

fn table_html(figure: &Figure) -> String {
    let is_text = |column: usize| figure.unit(column) == Unit::Text;
    let class = |column: usize| if is_text(column) { " class=\"t\"" } else { "" };
    let heads: String = (0..figure.columns.len())
        .map(|column| {
            format!("<th scope=\"col\"{}>{}</th>", class(column), escaped(figure.label(column)))
        })
        .collect();
    let rows: String = figure
        .rows
        .iter()
        .take(ROWS_MAX)
        .map(|row| {
            let cell = |column: usize| {
                format!("<td{}>{}</td>", class(column), escaped(&figure.text(row, column)))
            };
            let cells: String = (0..figure.columns.len()).map(cell).collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    let rest = match figure.rows.len().saturating_sub(ROWS_MAX) {
        0 => String::new(),
        rest => format!("<p>{rest} more rows are in the JSON and the CSV of this figure.</p>\n"),
    };
    // A box that scrolls must be reachable by keyboard.
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Numbers: {}\">\n\
         <table>\n<thead><tr>{heads}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table>\n</div>\n{rest}",
        escaped(&figure.title),
    )
}
