//! Tables for generated pages: cells are not padded, so that a change of one row is a change of one line.

/// A table of these rows.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let rule = "|---".repeat(header.len());
    let head = header
        .iter()
        .map(|cell| (*cell).to_owned())
        .collect::<Vec<_>>();
    let lines = rows.iter().map(|cells| line(cells));
    [line(&head), rule + "|\n"]
        .into_iter()
        .chain(lines)
        .collect()
}

fn line(cells: &[String]) -> String {
    let cells: String = cells
        .iter()
        .map(|cell| format!(" {} |", cell.replace('|', "\\|")))
        .collect();
    format!("|{cells}\n")
}
