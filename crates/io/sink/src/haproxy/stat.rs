use super::table::Columns;

/// The columns of `show stat` that are read.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum Stat {
    Proxy,
    Id,
    Server,
    Kind,
    Queued,
    InFlight,
    MaxConn,
    Started,
    ConnectErrors,
    ResponseErrors,
    Retries,
    Redispatches,
    Answers1xx,
    Answers2xx,
    Answers3xx,
    Answers4xx,
    Answers5xx,
    OtherAnswers,
    Status,
    EffectiveWeight,
    CheckStatus,
    Address,
    Algorithm,
    Backup,
}

const NAMES: [&str; 24] = [
    "pxname",
    "iid",
    "svname",
    "type",
    "qcur",
    "scur",
    "slim",
    "stot",
    "econ",
    "eresp",
    "wretr",
    "wredis",
    "hrsp_1xx",
    "hrsp_2xx",
    "hrsp_3xx",
    "hrsp_4xx",
    "hrsp_5xx",
    "hrsp_other",
    "status",
    "weight",
    "check_status",
    "addr",
    "algo",
    "bck",
];

/// `type` of a backend's own row.
pub(super) const BACKEND_ROW: &[u8] = b"1";
/// `type` of a server's row.
pub(super) const SERVER_ROW: &[u8] = b"2";

/// Reads the CSV of `show stat`.
pub(super) struct StatTable(Columns<{ NAMES.len() }>);

/// One row.
pub(super) struct StatRow<'a>([&'a [u8]; NAMES.len()]);

impl<'a> StatRow<'a> {
    pub(super) fn get(&self, column: Stat) -> &'a [u8] {
        self.0[column as usize]
    }
}

impl StatTable {
    pub(super) fn new() -> Self {
        StatTable(Columns::new(NAMES))
    }

    /// Calls `each` with every row, in HAProxy's order.
    pub(super) fn read<'a>(
        &mut self,
        csv: &'a [u8],
        mut each: impl FnMut(StatRow<'a>) -> Result<(), String>,
    ) -> Result<(), String> {
        let after_mark = csv.strip_prefix(b"# ").ok_or_else(|| {
            format!(
                "`show stat` answered {:?}",
                String::from_utf8_lossy(csv.get(..80).unwrap_or(csv))
            )
        })?;
        let end = after_mark.iter().position(|byte| *byte == b'\n').unwrap_or(after_mark.len());
        self.0.learn(&after_mark[..end], b',')?;
        let mut rest = after_mark.get(end + 1..).unwrap_or(&[]);
        while !rest.is_empty() {
            let mut row = StatRow([&[]; NAMES.len()]);
            rest = self.read_row(rest, &mut row)?;
            each(row)?;
        }
        Ok(())
    }

    /// Reads one row and returns what follows it.
    fn read_row<'a>(&self, mut rest: &'a [u8], row: &mut StatRow<'a>) -> Result<&'a [u8], String> {
        for column in 0.. {
            let (value, length) = field(rest)?;
            if let Some(field) = self.0.field(column) {
                row.0[field] = value;
            }
            match rest.get(length) {
                Some(b',') => rest = &rest[length + 1..],
                None | Some(b'\n') => {
                    if column + 1 < self.0.len() {
                        return Err("a row of `show stat` is shorter than its header".to_owned());
                    }
                    return Ok(rest.get(length + 1..).unwrap_or(&[]));
                }
                Some(_) => return Err("a row of `show stat` has a broken quote".to_owned()),
            }
        }
        Ok(&[])
    }
}

/// The first field and the bytes it takes. Quoted ones, free texts of checks, may hold commas and
/// newlines; their doubled quotes stay doubled, for no column that is read has any.
fn field(rest: &[u8]) -> Result<(&[u8], usize), String> {
    if rest.first() != Some(&b'"') {
        let length = rest.iter().position(|b| matches!(b, b',' | b'\n')).unwrap_or(rest.len());
        return Ok((&rest[..length], length));
    }
    let mut at = 1;
    while let Some(quote) = rest[at..].iter().position(|byte| *byte == b'"') {
        at += quote;
        if rest.get(at + 1) != Some(&b'"') {
            return Ok((&rest[1..at], at + 1));
        }
        at += 2;
    }
    Err("a row of `show stat` has an open quote".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(csv: &str) -> Result<Vec<(String, String)>, String> {
        let mut rows = Vec::new();
        StatTable::new().read(csv.as_bytes(), |row| {
            let text = |column| String::from_utf8_lossy(row.get(column)).into_owned();
            rows.push((text(Stat::Server), text(Stat::EffectiveWeight)));
            Ok(())
        })?;
        Ok(rows)
    }

    #[test]
    fn columns_may_come_in_another_order_with_new_ones_between() {
        let mut names = NAMES;
        names.reverse();
        let header = format!("# new1,{},new2", names.join(","));
        let values: Vec<String> = names.iter().map(|name| format!("<{name}>")).collect();
        let csv = format!("{header}\n?,{},?\n?,{},?", values.join(","), values.join(","));
        let expected = ("<svname>".to_owned(), "<weight>".to_owned());
        assert_eq!(rows(&csv).unwrap(), [expected.clone(), expected]);
    }

    #[test]
    fn quoted_texts_may_hold_anything() {
        let csv = format!(
            "# last_chk,{}\n\"a, \"\"b\"\"\n> c\",{}s1{}",
            NAMES.join(","),
            "shop,3,",
            ",".repeat(NAMES.len() - 3)
        );
        assert_eq!(rows(&csv).unwrap(), [("s1".to_owned(), String::new())]);
    }

    #[test]
    fn what_is_not_the_table_is_refused() {
        assert!(rows("No such proxy.").unwrap_err().contains("No such proxy."));
        assert!(rows("# pxname,svname\n").unwrap_err().contains("missing"));
        let header = NAMES.join(",");
        assert!(rows(&format!("# {header}\nshop,s1\nshop,s2\n")).unwrap_err().contains("shorter"));
        assert!(rows(&format!("# {header}\n\"shop")).unwrap_err().contains("open quote"));
        assert!(rows(&format!("# {header}\n\"shop\"x,")).unwrap_err().contains("broken quote"));
    }
}
