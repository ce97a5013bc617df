//! Replacing what differs between any two runs.

/// What in an output says nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mask {
    /// Dates as C's ctime writes them, and in seconds since 1970.
    Dates,
    /// Every number.
    Numbers,
    /// UUIDs.
    Uuids,
    /// Lines with this in them.
    Line(&'static str),
    /// The order of lines.
    Order,
}

impl Mask {
    pub(super) fn apply(self, text: &str) -> String {
        match self {
            Self::Dates => dates(text),
            Self::Numbers => numbers(text),
            Self::Uuids => words(text, is_uuid, "<uuid>"),
            Self::Line(part) => {
                let keep = |line: &&str| !line.contains(part);
                let lines = text.split_inclusive('\n').filter(keep);
                lines.collect()
            }
            Self::Order => {
                let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
                lines.sort_unstable();
                lines.concat()
            }
        }
    }
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Length of `Sat Nov 21 19:13:28 2026`.
const CTIME: usize = 24;

fn dates(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if rest.get(..CTIME).is_some_and(is_ctime) {
            out.push_str("<date>");
            rest = &rest[CTIME..];
        } else if digits > 0 {
            let number = &rest[..digits];
            let before = out.ends_with(|c: char| c.is_ascii_alphanumeric());
            rest = &rest[digits..];
            // A part of a UUID may be ten digits between letters.
            let is_word = !before && !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
            let seconds = digits == 10 && number.starts_with(['1', '2']) && is_word;
            out.push_str(if seconds { "<seconds>" } else { number });
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

fn is_ctime(text: &str) -> bool {
    let bytes = text.as_bytes();
    DAYS.iter().any(|day| text.starts_with(day))
        && (bytes[13], bytes[16]) == (b':', b':')
        && bytes[20..].iter().all(u8::is_ascii_digit)
}

fn numbers(text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for char in text.chars() {
        let digit = char.is_ascii_digit();
        if digit && !inside {
            // With the blanks in front, which fill a column.
            out.truncate(out.trim_end_matches(' ').len());
            out.push_str(" <n>");
        } else if !digit {
            out.push(char);
        }
        inside = digit;
    }
    out
}

fn is_uuid(word: &str) -> bool {
    word.len() >= 32
        && word
            .chars()
            .all(|c| c.is_ascii_hexdigit() || "-.".contains(c))
}

fn words(text: &str, is: impl Fn(&str) -> bool, with: &str) -> String {
    let replace = |word: &str| {
        let bare = word.trim_end();
        if is(bare) {
            format!("{with}{}", &word[bare.len()..])
        } else {
            word.to_owned()
        }
    };
    text.split_inclusive([' ', '\n']).map(replace).collect()
}

#[test]
fn masks_replace_what_they_say_and_no_more() {
    let dates = Mask::Dates.apply("at Sat Nov 21 19:13:28 2026, Sat is");
    assert_eq!(dates, "at <date>, Sat is");
    let dates = Mask::Dates.apply("1785795785 is <bf-2c-c1785795785d>");
    assert_eq!(dates, "<seconds> is <bf-2c-c1785795785d>");
    assert_eq!(Mask::Numbers.apply("free   12 of 7K"), "free <n> of <n>K");
    let uuid = "UUID: 004d4d2a-0c9f-1b0b-b0-1e-0100000aaa77\nx";
    assert_eq!(Mask::Uuids.apply(uuid), "UUID: <uuid>\nx");
    assert_eq!(Mask::Line("Last").apply("a\n  Last b\nc"), "a\nc");
    assert_eq!(Mask::Order.apply("b\na\n"), "a\nb\n");
}
