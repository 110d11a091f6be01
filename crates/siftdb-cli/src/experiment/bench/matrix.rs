//! The cells of a matrix: all combinations of values of some settings.

/// One combination: name and value of each setting.
pub type Cell = Vec<(String, String)>;

/// The cells of axes such as `filter=none,bloom:10` and `cache=8MB,1GB`. Without axes there is one
/// cell without settings. The last axis changes fastest.
///
/// # Errors
/// A sentence: an axis is no `NAME=VALUE,...`, or is given twice.
///
/// ```
/// use siftdb_cli::experiment::bench::cells;
///
/// let cells = cells(&["filter=none,bloom:10".into(), "cache=8MB,1GB".into()]).unwrap();
/// assert_eq!(cells.len(), 4);
/// assert_eq!(cells[1][1], ("cache".into(), "1GB".into()));
/// ```
pub fn cells(axes: &[String]) -> Result<Vec<Cell>, String> {
    let mut cells: Vec<Cell> = vec![Cell::new()];
    for axis in axes {
        let values = axis.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, values) =
            values.ok_or_else(|| format!("{axis:?} is no axis NAME=VALUE,VALUE"))?;
        if values.split(',').any(str::is_empty) {
            return Err(format!("{axis:?} has an empty value"));
        }
        if cells[0].iter().any(|(other, _)| other == name) {
            return Err(format!("the axis {name} is given twice"));
        }
        let with = |cell: &Cell, value: &str| -> Cell {
            cell.iter().cloned().chain([(name.to_owned(), value.to_owned())]).collect()
        };
        let longer = |cell: &Cell| values.split(',').map(|value| with(cell, value)).collect();
        cells = cells.iter().flat_map(|cell| -> Vec<Cell> { longer(cell) }).collect();
    }
    Ok(cells)
}

/// A cell as text: `filter=bloom:10 cache=8MB`.
pub fn cell_text(cell: &Cell) -> String {
    let settings: Vec<String> =
        cell.iter().map(|(name, value)| format!("{name}={value}")).collect();
    settings.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_axes_are_refused() {
        assert_eq!(cells(&[]).unwrap(), vec![Cell::new()]);
        for wrong in [&["filter"][..], &["=x"], &["a=1,,2"], &["a="], &["a=1", "a=2"]] {
            let axes: Vec<String> = wrong.iter().map(|axis| (*axis).into()).collect();
            assert!(cells(&axes).is_err(), "{wrong:?}");
        }
        let two = cells(&["a=1".into(), "b=2,3".into()]).unwrap();
        assert_eq!(cell_text(&two[1]), "a=1 b=3");
    }
}
