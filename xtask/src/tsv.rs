//! Tables as tab-separated values, for generated files: a change of one row is a change of one
//! line.

/// Returns a header and rows, each as a line.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let head = header.iter().map(|cell| (*cell).to_owned()).collect();
    std::iter::once(&head)
        .chain(rows)
        .map(|cells: &Vec<String>| line(cells))
        .collect()
}

/// A cell has one line, so tabs and line breaks become spaces.
fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells
        .iter()
        .map(|cell| cell.replace(['\t', '\n'], " "))
        .collect();
    cells.join("\t") + "\n"
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn a_cell_stays_in_its_line() {
        let rows = [
            vec!["1\t2".into(), "a\nb".into()],
            vec!["|".into(), String::new()],
        ];
        assert_eq!(table(&["x", "y"], &rows), "x\ty\n1 2\ta b\n|\t\n");
    }
}
