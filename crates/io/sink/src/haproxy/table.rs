/// Finds columns by their names, so that neither their order nor new ones matter.
///
/// The header is compared byte by byte with the one seen last, and only a new one is looked at.
pub(super) struct Columns<const N: usize> {
    names: [&'static str; N],
    header: Vec<u8>,
    /// For each column of the header, which of `names` it is.
    fields: Vec<Option<usize>>,
}

impl<const N: usize> Columns<N> {
    pub(super) fn new(names: [&'static str; N]) -> Self {
        Columns { names, header: Vec::new(), fields: Vec::new() }
    }

    /// Takes over a header line, its columns parted by `separator`.
    pub(super) fn learn(&mut self, header: &[u8], separator: u8) -> Result<(), String> {
        if header == self.header {
            return Ok(());
        }
        self.header.clear();
        self.fields.clear();
        for column in header.split(|byte| *byte == separator) {
            self.fields.push(self.names.iter().position(|name| name.as_bytes() == column));
        }
        for (field, name) in self.names.iter().enumerate() {
            if !self.fields.contains(&Some(field)) {
                return Err(format!("column {name:?} is missing from HAProxy's table"));
            }
        }
        self.header.extend_from_slice(header);
        Ok(())
    }

    /// Which of the names the column at this position is.
    pub(super) fn field(&self, column: usize) -> Option<usize> {
        self.fields.get(column).copied().flatten()
    }

    /// How many columns the header has.
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }
}

/// A decimal number; blank, which HAProxy writes where a counter does not exist, is 0.
pub(super) fn number(what: &str, text: &[u8]) -> Result<u64, String> {
    text.iter()
        .try_fold(0u64, |sum, byte| {
            let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
            sum.checked_mul(10)?.checked_add(u64::from(digit))
        })
        .ok_or_else(|| format!("{what} is {:?}, not a number", String::from_utf8_lossy(text)))
}

/// A decimal number of 32 bits.
pub(super) fn small(what: &str, text: &[u8]) -> Result<u32, String> {
    u32::try_from(number(what, text)?).map_err(|_| format!("{what} does not fit 32 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_in_any_order_and_missed_by_name() {
        let mut columns = Columns::new(["b", "a"]);
        columns.learn(b"a,x,b", b',').unwrap();
        assert_eq!(
            (columns.field(0), columns.field(1), columns.field(2)),
            (Some(1), None, Some(0))
        );
        columns.learn(b"b,a", b',').unwrap();
        assert_eq!((columns.field(0), columns.field(1)), (Some(0), Some(1)));
        assert!(columns.learn(b"a,c", b',').unwrap_err().contains("\"b\""));
    }

    #[test]
    fn numbers_are_plain_decimals() {
        assert_eq!(number("n", b"").unwrap(), 0);
        assert_eq!(number("n", b"18446744073709551615").unwrap(), u64::MAX);
        assert!(number("n", b"18446744073709551616").is_err());
        assert!(number("n", b"-1").is_err());
        assert!(small("n", b"4294967296").is_err());
    }
}
