//! Python's `datetime.strftime` in the C locale, for midnight of a date without a time zone.
//!
//! Python leaves the work to the C library, so the directives are those of glibc, with its flags
//! `_`, `-`, `0`, `^` and `#` and its widths. Python itself replaces `%f`, `%z`, `%:z` and `%Z`.

/// A day of the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Date {
    pub(crate) year: i32,
    /// The month, from 1 to 12.
    pub(crate) month: u32,
    /// The day of the month, from 1.
    pub(crate) day: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Returns true for a leap year.
fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

impl Date {
    /// Returns the day of the year, from 0.
    fn day_of_year(self) -> i32 {
        let before: u32 = (1..self.month)
            .map(|month| match month {
                2 => 28 + u32::from(is_leap(self.year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            })
            .sum();
        (before + self.day - 1) as i32
    }

    /// Returns the number of days since 1970-01-01.
    fn days(self) -> i64 {
        let before = i64::from(self.year) - 1;
        let leaps = before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
        before * 365 + leaps + i64::from(self.day_of_year()) - 719_162
    }

    /// Returns the day of the week, from 0 for Sunday.
    fn weekday(self) -> i32 {
        (self.days() + 4).rem_euclid(7) as i32
    }

    /// Returns the year and the week of ISO 8601.
    fn iso_week(self) -> (i32, i32) {
        let monday_based = (self.weekday() + 6) % 7;
        let week = (self.day_of_year() - monday_based + 10) / 7;

        // A year has 53 weeks if it begins or ends on a Thursday. A leap year that begins on a
        // Wednesday ends on one.
        let weeks = |year: i32| {
            let first = Date {
                year,
                month: 1,
                day: 1,
            }
            .weekday();
            if first == 4 || first == 3 && is_leap(year) {
                53
            } else {
                52
            }
        };
        if week < 1 {
            (self.year - 1, weeks(self.year - 1))
        } else if week > weeks(self.year) {
            (self.year + 1, 1)
        } else {
            (self.year, week)
        }
    }
}

/// The flags and the width of a directive.
#[derive(Clone, Copy, Default)]
struct Style {
    pad: Option<char>,
    upper: bool,
    swap: bool,
    width: usize,
}

impl Style {
    /// Returns a number with its padding.
    fn number(self, number: i64, digits: usize, pad: char) -> String {
        let digits = if self.width > 0 { self.width } else { digits };
        let text = number.to_string();
        match self.pad.unwrap_or(pad) {
            '-' => text,
            '_' => format!("{text:>digits$}"),
            _ => format!("{text:0>digits$}"),
        }
    }

    /// Returns a name with its padding, in capitals if a flag says so.
    fn text(self, text: &str) -> String {
        let text = if self.upper || self.swap {
            text.to_uppercase()
        } else {
            text.to_owned()
        };
        self.padded(text)
    }

    /// Returns a text with its padding.
    fn padded(self, text: String) -> String {
        let width = self.width;
        match self.pad {
            Some('0' | '+') => format!("{text:0>width$}"),
            _ => format!("{text:>width$}"),
        }
    }
}

/// Returns the text of a format. An unknown directive stays as it is.
pub(crate) fn format(format: &str, date: Date) -> Result<String, String> {
    let mut out = String::with_capacity(format.len());
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out += &rest[..at];
        rest = &rest[at..];
        let len = directive(rest, date, &mut out)?;
        rest = &rest[len..];
        if out.len() > crate::chat::jinja::limits::LONGEST {
            return Err("the text is too long".to_owned());
        }
    }

    out += rest;
    Ok(out)
}

/// Appends the text of the directive at the beginning of `text`, and returns its length.
fn directive(text: &str, date: Date, out: &mut String) -> Result<usize, String> {
    // Python replaces these before the C library sees them, and it knows no flags for them.
    for (known, value) in [("%f", "000000"), ("%z", ""), ("%Z", ""), ("%:z", "")] {
        if text.starts_with(known) {
            out.push_str(value);
            return Ok(known.len());
        }
    }

    let mut style = Style::default();
    let mut at = 1;
    let bytes = text.as_bytes();
    while let Some(flag) = bytes.get(at) {
        match flag {
            b'_' | b'-' | b'0' | b'+' => style.pad = Some(char::from(*flag)),
            b'^' => style.upper = true,
            b'#' => style.swap = true,
            _ => break,
        }
        at += 1;
    }

    while let Some(digit) = bytes.get(at).filter(|byte| byte.is_ascii_digit()) {
        style.width = style.width * 10 + usize::from(digit - b'0');
        if style.width > 1000 {
            return Err("a width is greater than 1000".to_owned());
        }
        at += 1;
    }

    // `E` and `O` ask for other calendars and digits, which the C locale does not have.
    if matches!(bytes.get(at), Some(b'E' | b'O')) {
        at += 1;
    }

    let Some(letter) = text[at..].chars().next() else {
        // glibc writes an unfinished directive as it is.
        out.push_str(text);
        return Ok(text.len());
    };

    let len = at + letter.len_utf8();
    match value(letter, style, date)? {
        Some(value) => out.push_str(&value),
        None => out.push_str(&text[..len]),
    }

    Ok(len)
}

fn value(letter: char, style: Style, date: Date) -> Result<Option<String>, String> {
    let year = i64::from(date.year);
    let month = MONTHS[(date.month as usize).clamp(1, 12) - 1];
    let weekday = date.weekday();
    let day_name = WEEKDAYS[weekday as usize];
    let (iso_year, iso_week) = date.iso_week();
    let compound = |text: &str| {
        let inner = format(text, date)?;
        let inner = if style.upper {
            inner.to_uppercase()
        } else {
            inner
        };
        Ok::<_, String>(style.padded(inner))
    };
    Ok(Some(match letter {
        'a' => style.text(&day_name[..3]),
        'A' => style.text(day_name),
        'b' | 'h' => style.text(&month[..3]),
        'B' => style.text(month),
        'c' => compound("%a %b %e %H:%M:%S %Y")?,
        'C' => style.number(year.div_euclid(100), 2, '0'),
        'd' => style.number(date.day.into(), 2, '0'),
        'D' | 'x' => compound("%m/%d/%y")?,
        'e' => style.number(date.day.into(), 2, '_'),
        'F' => compound("%Y-%m-%d")?,
        'g' => style.number(i64::from(iso_year).rem_euclid(100), 2, '0'),
        'G' => style.number(iso_year.into(), 1, '0'),
        'H' => style.number(0, 2, '0'),
        'I' => style.number(12, 2, '0'),
        'j' => style.number(i64::from(date.day_of_year()) + 1, 3, '0'),
        'k' => style.number(0, 2, '_'),
        'l' => style.number(12, 2, '_'),
        'm' => style.number(date.month.into(), 2, '0'),
        'M' | 'S' => style.number(0, 2, '0'),
        'n' => style.padded("\n".to_owned()),
        'p' if style.swap => Style {
            upper: false,
            swap: false,
            ..style
        }
        .text("am"),
        'p' => style.text("AM"),
        'P' => Style {
            upper: style.upper,
            swap: false,
            ..style
        }
        .text("am"),
        'r' => compound("%I:%M:%S %p")?,
        'R' => compound("%H:%M")?,
        't' => style.padded("\t".to_owned()),
        'T' | 'X' => compound("%H:%M:%S")?,
        'u' => style.number(if weekday == 0 { 7 } else { weekday.into() }, 1, '0'),
        'U' => style.number(i64::from((date.day_of_year() + 7 - weekday) / 7), 2, '0'),
        'V' => style.number(iso_week.into(), 2, '0'),
        'w' => style.number(weekday.into(), 1, '0'),
        'W' => style.number(
            i64::from((date.day_of_year() + 7 - (weekday + 6) % 7) / 7),
            2,
            '0',
        ),
        'y' => style.number(year.rem_euclid(100), 2, '0'),
        'Y' => style.number(year, 1, '0'),
        '%' => style.padded("%".to_owned()),
        'z' | 'Z' => style.padded(String::new()),
        's' => {
            return Err(
                "%s depends on the time zone of the machine; use another directive".to_owned(),
            );
        }
        _ => return Ok(None),
    }))
}
