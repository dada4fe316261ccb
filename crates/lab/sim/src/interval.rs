//! Means, their standard errors, and their confidence intervals by Student's t.

/// The 97.5 % quantile of Student's t for 1 to 9 degrees of freedom.
const STUDENT: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

/// The mean of these; none of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard error of the mean of these; none of fewer than two.
pub fn standard_error(values: &[f64]) -> Option<f64> {
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)? as f64;
    let mean = mean(values)?;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom;
    Some((variance / values.len() as f64).sqrt())
}

/// Half the width of the 95 % interval of the mean of these; none of fewer than two.
pub fn half_width(values: &[f64]) -> Option<f64> {
    Some(student(values.len().checked_sub(1)? as f64) * standard_error(values)?)
}

/// How many standard errors half of a 95 % interval is, with at least one degree of freedom: the table's value, and
/// from 10 on the Cornish-Fisher expansion, which is within 0.01 %.
pub fn student(freedom: f64) -> f64 {
    if let Some(t) = STUDENT.get((freedom as usize).saturating_sub(1)) {
        return *t;
    }
    let z: f64 = 1.959_964;
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * freedom.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let known = [(1.0, 12.706), (4.0, 2.776), (9.0, 2.262), (10.0, 2.228), (11.0, 2.201)];
        for (freedom, table) in known.into_iter().chain([(19.0, 2.093), (1000.0, 1.962)]) {
            assert!((student(freedom) / table - 1.0_f64).abs() < 3e-4, "{freedom}");
        }
    }

    #[test]
    fn an_interval_needs_two_values() {
        assert_eq!((half_width(&[]), half_width(&[3.0])), (None, None));
        assert_eq!((mean(&[]), mean(&[3.0, 5.0])), (None, Some(4.0)));
        assert_eq!((standard_error(&[3.0]), standard_error(&[10.0, 14.0])), (None, Some(2.0)));
        // A standard error of 2.
        assert!((half_width(&[10.0, 14.0]).unwrap() - 25.412).abs() < 1e-9);
        assert_eq!(half_width(&[5.0; 30]), Some(0.0));
    }
}
