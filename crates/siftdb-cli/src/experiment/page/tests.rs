//! Pages of all pictures: what they say, that they are sound documents, and their forms as data.

use crate::experiment::figure::{Cell, Figure, Heading, Picture, Scale, Unit};
use crate::experiment::page::axis::Axis;
use crate::experiment::page::page::Page;
use proptest::prelude::*;
use serde_json::Value;
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
    let picture = Picture::Bars { labels: vec![0], values: vec![1, 2], interval: None };
    figure("blocks-by-layout", &columns, rows.collect(), picture)
}

fn boxes() -> Figure {
    let rows = (0..3u32).flat_map(|level| {
        let tables = 3 * (level + 1).pow(2);
        (0..tables).map(move |n| {
            // Level 0 overlaps.
            let share = |n| if level > 0 { f64::from(n) / f64::from(tables) } else { 0.0 };
            let (from, to) = (share(n), if level > 0 { share(n + 1) } else { 1.0 });
            let bits = if n == 2 { Cell::Absent } else { Cell::Number(10.0 * f64::from(level)) };
            let label = text(&format!("{:06}", 10 * level + n));
            let ends = [Cell::Number(from), Cell::Number(to)];
            [vec![text(&format!("level {level}")), label, bits], ends.to_vec()].concat()
        })
    });
    let columns = [
        ("level", "level", Unit::Text),
        ("table", "table", Unit::Text),
        ("bits_per_key", "bits of filter a key", Unit::Number),
        ("from", "from", Unit::Share),
        ("to", "to", Unit::Share),
    ];
    let picture = Picture::Boxes { group: 0, label: 1, ends: (3, 4), shade: Some(2) };
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

/// The number of a position in per cent.
fn percent_of(value: &str) -> Option<f64> {
    value.strip_suffix('%')?.parse().ok()
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
    // All colors are those of the style sheet, and positions are in per cent.
    let (_, body) = html.split_once("<body>").unwrap();
    assert!(["fill", "stroke", "color"].iter().all(|name| attributes(body, name).is_empty()));
    for style in attributes(body, "style").iter().flat_map(|style| style.split(';')) {
        let (name, value) = style.split_once(':').unwrap_or_default();
        let is_sound = match name {
            "" => style.is_empty(),
            "--c" => value.starts_with("var(--") && value.ends_with(')'),
            "left" | "width" => {
                percent_of(value).is_some_and(|share| (0.0..=100.0).contains(&share))
            }
            _ => name.starts_with("--") && !value.contains('#'),
        };
        assert!(is_sound, "{style}");
    }
}

#[test]
fn pages_are_whole_and_load_nothing() {
    let html = page().html();
    check(&page());
    for escaped in ["A page &lt;script&gt;", "&lt;/dl&gt;", "a &amp; b \u{fffd}", "&lt;b&gt;that"] {
        assert!(html.contains(escaped), "{escaped}");
    }
    assert_eq!(html.matches("class=\"drawing ").count(), 4);
    assert_eq!(html.matches("role=\"img\"").count(), 4);
    assert_eq!(html.matches("numbers.</p>").count(), 4);
    assert_eq!(html.matches("<table>").count(), 5);
    assert_eq!(html.matches("<details>").count(), 4);
    if let Ok(file) = std::env::var("SIFTDB_PAGE") {
        #[expect(clippy::disallowed_methods, reason = "a file to look at")]
        std::fs::write(file, html).unwrap();
    }
}

#[test]
fn columns_of_zeros_have_no_bars() {
    let mut page = page();
    let figure = &mut page.figures[1];
    figure.rows.iter_mut().for_each(|row| row[2] = Cell::Number(0.0));
    page.figures.drain(2..).for_each(drop);
    let html = page.html();
    let picture = drawing(&html, "blocks-by-layout");
    assert_eq!(picture.matches("var(--series0)").count(), 5);
    assert!(!picture.contains("var(--series1)"));
}

/// The picture of a figure in a document.
fn drawing<'a>(html: &'a str, id: &str) -> &'a str {
    let (_, picture) = html.split_once(&format!("aria-describedby=\"{id}-d\"")).unwrap();
    picture.split_once(&format!("<p id=\"{id}-d\"")).unwrap().0
}

/// The picture in the page of one figure.
fn picture_of(figure: Figure) -> String {
    let id = figure.id;
    let page = Page { figures: vec![figure], ..page() };
    check(&page);
    drawing(&page.html(), id).into()
}

#[test]
fn tables_that_overlap_are_below_each_other() {
    let places = |rows: Vec<Vec<Cell>>| -> BTreeSet<String> {
        let picture = picture_of(Figure { rows, ..boxes() });
        let (_, tables) = picture.split_once("level 0").unwrap();
        let (tables, _) = tables.split_once("level 1").unwrap_or((tables, ""));
        let lanes = tables.split("class=\"lane\"").skip(1);
        lanes.filter(|lane| lane.contains("<i ")).map(str::to_string).collect()
    };
    let rows = boxes().rows;
    assert_eq!(places(rows.clone()).len(), 3, "three tables of level 0 over the same keys");
    let mut apart = rows[..3].to_vec();
    for (n, row) in (0u8..).zip(&mut apart) {
        row[3] = Cell::Number(f64::from(n) / 3.0);
        row[4] = Cell::Number(f64::from(n + 1) / 3.0);
    }
    assert_eq!(places(apart).len(), 1);
}

#[test]
fn a_layout_has_one_color_on_the_page() {
    let columns =
        [("layout", "layout", Unit::Text), ("x", "x", Unit::Number), ("y", "y", Unit::Number)];
    let row = |name: &str, x| vec![text(name), Cell::Number(x), Cell::Number(x)];
    let lines = |id, names: &[&str]| {
        let rows = names.iter().flat_map(|name| [row(name, 1.0), row(name, 2.0)]).collect();
        let (interval, expected, x_scale) = (None, None, Scale::Linear);
        let y_scale = x_scale;
        let picture =
            Picture::Lines { series: 0, x: 1, y: 2, interval, expected, x_scale, y_scale };
        figure(id, &columns, rows, picture)
    };
    let figures = vec![lines("all", &["no filter", "per 2 KiB", "full"]), lines("one", &["full"])];
    let mut page = Page { figures, ..page() };
    let mut layouts = bars();
    layouts.rows = vec![layouts.rows[2].clone()];
    page.figures.push(layouts);
    check(&page);
    let html = page.html();
    for id in ["one", "blocks-by-layout"] {
        let picture = drawing(&html, id);
        for other in 0..6 {
            let found = picture.contains(&format!("var(--series{other})"));
            assert_eq!(found, other == 2, "{id}: {other}");
        }
    }
}

#[test]
fn long_texts_are_wrapped_and_not_cut() {
    let long = "a text that is far too long for one line of a picture on a phone".to_string();
    let mut lookup = steps();
    lookup.rows[3][2] = text(&long);
    let mut layouts = bars();
    layouts.rows[1][0] = text(&long);
    layouts.columns[1].label = "data blocks for an absent key, in a legend that is far too long";
    let mut lines = rates();
    lines.rows.iter_mut().for_each(|row| row[0] = text(&long));
    let tree = boxes();
    // The browser wraps long texts. No style cuts a text off.
    assert!(!page().html().contains("text-overflow"));
    for (drawn, words) in [
        (lookup, &long[..]),
        (layouts, &long),
        (lines, &long),
        (tree, "shade: bits of filter a key"),
    ] {
        let picture = picture_of(drawn);
        assert!(!picture.contains('\u{2026}'), "{picture}");
        let drawn = picture.split('>').filter_map(|text| text.split_once('<'));
        let drawn: String = drawn.map(|(text, _)| text.trim().to_string() + " ").collect();
        assert!(drawn.contains(words), "{words}: {drawn}");
    }
}

#[test]
fn bars_show_their_intervals() {
    let columns = [
        ("settings", "settings", Unit::Text),
        ("ratio", "time without filters / with filters", Unit::Number),
        ("low", "from", Unit::Number),
        ("high", "to", Unit::Number),
    ];
    let rows = [("filter=none", [1.0, 0.9, 1.1]), ("filter=bloom:10", [4.0, 3.0, 6.0])];
    let row = |(name, ends): (&str, [f64; 3])| [vec![text(name)], ends.map(Cell::Number).to_vec()];
    let rows = rows.map(|one| row(one).concat()).to_vec();
    let drawn = |interval| {
        let (labels, values) = (vec![0], vec![1]);
        let picture = Picture::Bars { labels, values, interval };
        let page =
            Page { figures: vec![figure("ratio", &columns, rows.clone(), picture)], ..page() };
        check(&page);
        page.html()
    };
    let (with, without) = (drawn(Some((2, 3))), drawn(None));
    // A line for each row, from the low end to the high one.
    let strokes = |html: &str| -> Vec<String> {
        let picture = drawing(html, "ratio").split("</b><i style=\"").skip(1);
        picture.map(|stroke| stroke.split('"').next().unwrap().to_string()).collect()
    };
    assert_eq!(strokes(&with), ["left:15.00%;width:3.33%", "left:50.00%;width:50.00%"]);
    assert!(strokes(&without).is_empty());
    assert!(with.contains("with its interval as a line"), "{with}");
    // The axis reaches the end of the longest one.
    let reaches = |html: &str| drawing(html, "ratio").contains(">6</span>");
    assert!(reaches(&with) && !reaches(&without), "{with}");
}

/// The fields of a line of CSV, without those that hold line breaks.
fn csv_fields(line: &str) -> Vec<String> {
    let (mut fields, mut is_quoted) = (vec![String::new()], false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, is_quoted) {
            ('"', true) if letters.peek() == Some(&'"') => {
                letters.next();
                fields.last_mut().unwrap().push('"');
            }
            ('"', _) => is_quoted = !is_quoted,
            (',', false) => fields.push(String::new()),
            _ => fields.last_mut().unwrap().push(letter),
        }
    }
    fields
}

#[test]
fn json_and_csv_hold_every_cell() {
    let mut page = page();
    page.figures[3].rows[0][2] = text("quoted \"no\", and a comma");
    let (json, csv) = (page.json(), page.csv());
    assert_eq!(json["facts"][0]["text"], "1");
    for ((figure, json), (id, csv)) in
        page.figures.iter().zip(json["figures"].as_array().unwrap()).zip(&csv)
    {
        assert_eq!((json["id"].as_str(), *id), (Some(figure.id), figure.id));
        assert_eq!(json["finding"].as_str(), Some(&figure.finding[..]));
        let names: Vec<_> = figure.columns.iter().map(|column| column.name).collect();
        let lines: Vec<_> = csv.lines().map(csv_fields).collect();
        assert_eq!(lines[0], names);
        let rows = json["rows"].as_array().unwrap();
        assert_eq!((rows.len(), lines.len()), (figure.rows.len(), figure.rows.len() + 1));
        for ((row, json), fields) in figure.rows.iter().zip(rows).zip(&lines[1..]) {
            assert_eq!(fields.len(), row.len());
            for ((cell, json), field) in row.iter().zip(json.as_array().unwrap()).zip(fields) {
                match cell {
                    Cell::Text(text) => assert_eq!((json.as_str(), field), (Some(&text[..]), text)),
                    Cell::Number(number) => {
                        assert_eq!(json.as_f64(), Some(*number));
                        assert_eq!(field.parse(), Ok(*number));
                    }
                    Cell::Absent => assert_eq!((json, &field[..]), (&Value::Null, "")),
                }
            }
        }
    }
}

/// Numbers as experiments have them, and as none should.
fn numbers() -> impl Strategy<Value = Cell> {
    prop_oneof![
        4 => (0.0..1e6).prop_map(Cell::Number),
        2 => (0u32..50).prop_map(|count| Cell::Number(count.into())),
        1 => any::<f64>().prop_map(Cell::Number),
        1 => Just(Cell::Number(0.0)),
        1 => Just(Cell::Absent),
    ]
}

fn pictures() -> impl Strategy<Value = Picture> {
    let scale = || prop_oneof![Just(Scale::Linear), Just(Scale::Log)];
    let lines = (any::<bool>(), scale(), scale()).prop_map(|(more, x_scale, y_scale)| {
        let (interval, expected) = (more.then_some((4, 5)), more.then_some(4));
        Picture::Lines { series: 0, x: 2, y: 3, interval, expected, x_scale, y_scale }
    });
    let bars = (any::<bool>(), 0usize..4).prop_map(|(more, count)| Picture::Bars {
        labels: vec![0, 1],
        values: (2..2 + count).collect(),
        interval: more.then_some((4, 5)),
    });
    let shade = prop_oneof![Just(None), Just(Some(3))];
    let boxes = shade.prop_map(|shade| Picture::Boxes { group: 0, label: 1, ends: (2, 3), shade });
    let steps = Just(Picture::Steps { what: 1, answer: 0, place: 0, read: 2 });
    prop_oneof![lines, bars, boxes, steps]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
    #[test]
    fn any_table_makes_a_sound_page(
        rows in prop::collection::vec(
            ("\\PC{0,40}", "[a-c]{0,3}", prop::collection::vec(numbers(), 4)), 0..30),
        picture in pictures(),
        unit in prop_oneof![
            Just(Unit::Number), Just(Unit::Count), Just(Unit::Share), Just(Unit::Bytes),
            Just(Unit::Nanos)
        ],
    ) {
        let row = |(label, group, numbers): (String, String, Vec<Cell>)| {
            // By chance a label would spell "NaN", "src=" or "url(", which `check` looks for.
            let label = label.replace(['N', 'r'], "n");
            [vec![Cell::Text(group), Cell::Text(label)], numbers].concat()
        };
        let columns = [
            ("group", "group", Unit::Text),
            ("label", "label", Unit::Text),
            ("a", "a", unit),
            ("b", "b", unit),
            ("c", "c", unit),
            ("d", "d", unit),
        ];
        let rows = rows.into_iter().map(row).collect();
        let figures = vec![figure("any", &columns, rows, picture)];
        check(&Page { figures, ..page() });
    }

    #[test]
    fn axes_hold_their_values_between_round_ticks(
        values in prop::collection::vec(prop_oneof![0.0..1e12, 0.0..1.0, Just(0.0)], 0..20),
        is_log in any::<bool>(),
        is_cut in any::<bool>(),
        ticks_max in 2usize..12,
    ) {
        let scale = if is_log { Scale::Log } else { Scale::Linear };
        let axis = Axis::new(&values, Unit::Number, scale, ticks_max);
        let axis = if is_cut { axis.ending_at_data(&values) } else { axis };
        prop_assert!(axis.ticks.len() <= ticks_max + 1, "{:?}", axis);
        prop_assert!(!axis.ticks.is_empty() && axis.ticks.windows(2).all(|two| two[0] < two[1]));
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let places: Vec<f64> = sorted.iter().map(|value| axis.at(*value)).collect();
        prop_assert!(places.iter().all(|place| (0.0..=1.0).contains(place)));
        prop_assert!(places.is_sorted());
        let least = sorted.iter().find(|value| **value > 0.0);
        if let (true, true, Some(least)) = (is_log, values.contains(&0.0), least) {
            prop_assert_eq!((axis.at(0.0), axis.ticks[0], axis.break_at()), (0.0, 0.0, Some(0.03)));
            prop_assert!(axis.at(*least) >= 0.06, "{} is drawn as 0: {:?}", least, axis);
        } else {
            prop_assert_eq!(axis.break_at(), None);
        }
        let apart = axis.clone().with_labels_apart(60);
        let letters = apart.ticks.iter().map(|tick| apart.label(*tick).chars().count());
        let letters: usize = letters.sum();
        prop_assert!(apart.ticks.len() <= axis.ticks.len());
        prop_assert!(letters <= 60 || apart.ticks.len() <= 2, "{:?}", apart);
    }
}

#[test]
fn long_tables_are_cut_in_the_document_alone() {
    let mut page = page();
    let row = page.figures[0].rows[0].clone();
    page.figures[0].rows = vec![row; 5_000];
    check(&page);
    assert!(page.html().contains("4600 more rows are in the JSON"));
    assert_eq!(page.csv()[0].1.lines().count(), 5_001);
}

#[test]
fn pictures_of_many_lines_show_the_first_ones() {
    let mut page = page();
    let rows = (0..600).map(|n| {
        let mut row = page.figures[0].rows[n % 40].clone();
        row[0] = text(&format!("series {}", n / 10));
        row
    });
    page.figures[0].rows = rows.collect();
    check(&page);
    let html = page.html();
    assert_eq!(html.matches("the first 12 of 60 lines; the table has all").count(), 1);
    let (pictures, _) = html.split_once("<details>").unwrap();
    // A measured line and an expected one each.
    assert_eq!(pictures.matches("<polyline").count(), 2 * 12);
    assert!(!pictures.contains(">series 12") && page.csv()[0].1.contains("series 59"));
}
