//! Pages of all pictures: what they say, that they are sound documents, and their forms as data.

use crate::experiment::figure::{Cell, Figure, Heading, Picture, Scale, Unit};
use crate::experiment::page::page::Page;
use std::collections::BTreeSet;

fn heading(name: &'static str, label: &'static str, unit: Unit) -> Heading {
    Heading { name, label, unit }
}

fn figure(
    id: &'static str,
    columns: &[(&'static str, &'static str, Unit)],
    rows: Vec<Vec<Cell>>,
    picture: Picture,
) -> Figure {
    Figure {
        id,
        title: format!("Title of {id} <&>"),
        finding: format!("What {id} shows, in \"one\" sentence & 'no' more than <b>that</b>."),
        command: format!("siftdb demo --input 'a & b' > {id}"),
        columns: columns.iter().map(|(name, label, unit)| heading(name, label, *unit)).collect(),
        rows,
        picture,
    }
}

fn text(text: &str) -> Cell {
    Cell::Text(text.into())
}

fn rates() -> Figure {
    let names = ["FastLocalBloom", "Ribbon", "LevelDB Bloom", "legacy Bloom"];
    let rows = names.iter().enumerate().flat_map(|(n, name)| {
        (1..=10).map(move |step| {
            let bits = 2.0 * f64::from(step);
            let expected = 0.6185f64.powf(bits) * (1.0 + 0.4 * n as f64);
            let observed = expected * (1.0 + 0.1 * (f64::from(step) * 1.7 + n as f64).sin());
            let cells = [bits, observed, observed * 0.8, observed * 1.25, expected];
            [vec![text(name)], cells.map(Cell::Number).to_vec()].concat()
        })
    });
    let columns = [
        ("encoding", "encoding", Unit::Text),
        ("bits_per_key", "bits a key", Unit::Number),
        ("observed_fpr", "false positives, observed", Unit::Share),
        ("observed_fpr_low", "95 % interval from", Unit::Share),
        ("observed_fpr_high", "to", Unit::Share),
        ("expected_fpr", "false positives, expected", Unit::Share),
    ];
    let picture = Picture::Lines {
        series: 0,
        x: 1,
        y: 2,
        interval: Some((3, 4)),
        expected: Some(5),
        x_scale: Scale::Linear,
        y_scale: Scale::Log,
    };
    figure("fpr-by-bits", &columns, rows.collect(), picture)
}

fn bars() -> Figure {
    let names = ["no filter", "per 2 KiB", "full", "partitioned", "full, unasked"];
    let rows = names.iter().zip([3.98, 0.041, 0.039, 0.0402, 3.98]).map(|(name, absent)| {
        let present = if absent > 1.0 { Cell::Number(absent / 2.0 + 1.0) } else { Cell::Absent };
        vec![text(name), Cell::Number(absent), present]
    });
    let columns = [
        ("layout", "layout", Unit::Text),
        ("absent", "data blocks for an absent key", Unit::Number),
        ("present", "data blocks for a present key", Unit::Number),
    ];
    let picture = Picture::Bars { labels: vec![0], values: vec![1, 2], scale: Scale::Linear };
    figure("blocks-by-layout", &columns, rows.collect(), picture)
}

fn boxes() -> Figure {
    let rows = (0..3u32).flat_map(|level| {
        (0..3 * (level + 1).pow(2)).map(move |n| {
            let bytes = 2e6 * f64::from(1 + (n * 7 + level) % 5);
            let bits = if n == 2 { Cell::Absent } else { Cell::Number(10.0 * f64::from(level)) };
            let label = text(&format!("{:06}", 10 * level + n));
            vec![text(&format!("level {level}")), label, Cell::Number(bytes), bits]
        })
    });
    let columns = [
        ("level", "level", Unit::Text),
        ("table", "table", Unit::Text),
        ("bytes", "bytes", Unit::Bytes),
        ("bits_per_key", "bits of filter a key", Unit::Number),
    ];
    let picture = Picture::Boxes { group: 0, label: 1, size: 2, shade: Some(3) };
    figure("tree", &columns, rows.collect(), picture)
}

fn steps() -> Figure {
    let row = |place: &str, what: &str, answer: &str, bytes: f64| {
        vec![text(place), text(what), text(answer), Cell::Number(bytes)]
    };
    let rows = vec![
        row("memory", "memtable", "not there", 0.0),
        row("level 0, table 12", "filter (pinned)", "no: skipped", 0.0),
        row("level 1, table 9", "filter (pinned)", "maybe", 0.0),
        row("level 1, table 9", "index", "points to a block", 0.0),
        row("level 1, table 9", "data block", "found, a value of 100 B", 4096.0),
    ];
    let columns = [
        ("place", "place", Unit::Text),
        ("what", "asked", Unit::Text),
        ("answer", "answer", Unit::Text),
        ("bytes_read", "bytes read", Unit::Bytes),
    ];
    let picture = Picture::Steps { what: 1, answer: 2, place: 0, read: 3 };
    figure("lookup", &columns, rows, picture)
}

fn page() -> Page {
    let mut table = bars();
    (table.id, table.picture) = ("costs", Picture::Table);
    Page {
        title: "A page <script>alert(1)</script>".into(),
        sentence: "It shows \"everything\" & more.".into(),
        command: "siftdb demo --seed 1 --html 'a page.html'".into(),
        facts: vec![("seed".into(), "1".into()), ("</dl>".into(), "a & b \u{1}".into())],
        figures: vec![rates(), bars(), boxes(), steps(), table],
    }
}

/// The texts of attributes `name` in a document.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let parts = html.split(&format!(" {name}=\"")).skip(1).collect::<Vec<_>>();
    parts.into_iter().filter_map(|part| part.split('"').next()).collect()
}

/// Checks what holds for every page.
fn check(page: &Page) {
    let html = page.html();
    assert!(html.len() < 1_000_000, "{} bytes", html.len());
    for fetched in ["http:", "https:", "src=", "url(", "@import", "<script", "<link rel=\"style"] {
        assert!(!html.contains(fetched), "{fetched}");
    }
    let ids = attributes(&html, "id");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    for referred in attributes(&html, "aria-labelledby") {
        assert!(referred.split(' ').all(|id| ids.contains(&id)), "{referred}");
    }
    assert!(!html.contains("NaN") && !html.contains("Not drawn"), "{html}");
    assert!(html.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
    // Elements that are opened are closed.
    for element in ["svg", "figure", "table", "details", "text", "div", "p", "code", "td"] {
        let opened = html.matches(&format!("<{element}>")).count()
            + html.matches(&format!("<{element} ")).count();
        assert_eq!(opened, html.matches(&format!("</{element}>")).count(), "{element}");
    }
    // All colors are those of the style sheet.
    let (_, body) = html.split_once("<body>").unwrap();
    for color in ["fill", "stroke"] {
        let colors = attributes(body, color);
        assert!(colors.iter().all(|color| *color == "none" || color.starts_with("var(--")));
    }
}

#[test]
fn pages_are_whole_and_load_nothing() {
    let html = page().html();
    check(&page());
    for escaped in ["A page &lt;script&gt;", "&lt;/dl&gt;", "a &amp; b \u{fffd}", "&lt;b&gt;that"] {
        assert!(html.contains(escaped), "{escaped}");
    }
    assert_eq!(html.matches("<svg ").count(), 8);
    assert_eq!(html.matches("role=\"img\"").count(), 8);
    assert_eq!(html.matches("<desc ").count(), 8);
    assert_eq!(html.matches("<table>").count(), 5);
    assert_eq!(html.matches("<details>").count(), 4);
    if let Ok(file) = std::env::var("SIFTDB_PAGE") {
        #[expect(clippy::disallowed_methods, reason = "a file to look at")]
        std::fs::write(file, html).unwrap();
    }
}
