//! The time axis of a diagram: even, but for long times in which nothing happens.

/// How many units of time nothing must happen until that is left out.
const LONG: f64 = 8.0;

/// How wide a gap is drawn, in pixels.
pub(crate) const GAP: f64 = 44.0;

/// Where times are, in pixels.
#[derive(Debug)]
pub(crate) struct Axis {
    scale: f64,
    /// From each of these times on, it is this far to the right.
    knots: Vec<(f64, f64)>,
    /// Where something is left out, and how much, in units.
    pub(crate) gaps: Vec<(f64, f64)>,
    /// Where it ends.
    pub(crate) end: f64,
}

impl Axis {
    /// An axis from `left` on, with so many pixels a unit, for what happens at `times`, in order.
    pub(crate) fn new(times: &[f64], left: f64, scale: f64) -> Self {
        let mut axis = Self {
            scale,
            knots: vec![(0.0, left)],
            gaps: Vec::new(),
            end: left,
        };
        for pair in times.windows(2) {
            let [before, after] = [pair[0], pair[1]];
            if after - before > LONG {
                // A little of the silence on both sides shows that it is one.
                let (from, to) = (before + 0.5, after - 0.5);
                let x = axis.x(from);
                axis.gaps.push((x, to - from));
                axis.knots.push((from, x));
                axis.knots.push((to, x + GAP));
            }
        }
        axis.end = axis.x(times.last().copied().unwrap_or_default());
        axis
    }

    /// Where `time` is.
    pub(crate) fn x(&self, time: f64) -> f64 {
        let place = self.knots.partition_point(|(from, _)| *from <= time);
        let (from, x) = self.knots[place.max(1) - 1];
        let x = x + (time - from) * self.scale;
        // Inside a gap.
        self.knots.get(place).map_or(x, |(_, next)| x.min(*next))
    }

    /// The marks: whole units, at least `room` pixels apart.
    pub(crate) fn marks(&self, room: f64) -> Vec<(f64, u64)> {
        let decades = (0..15).map(|power| 10_u64.pow(power));
        let mut steps = decades.flat_map(|decade| [1, 2, 5].map(|step| step * decade));
        let is_wide = |step: &u64| *step as f64 * self.scale >= room;
        let step = steps.find(is_wide).unwrap_or(u64::MAX);
        let mut marks: Vec<(f64, u64)> = Vec::new();
        for pair in self.segments() {
            let first = (pair.0 / step as f64).ceil() as u64;
            let last = (pair.1 / step as f64).floor() as u64;
            for number in (first..=last).map(|i| i * step) {
                let x = self.x(number as f64);
                if marks.last().is_none_or(|(before, _)| before + room <= x) {
                    marks.push((x, number));
                }
            }
        }
        marks
    }

    /// The times that are shown, from gap to gap.
    fn segments(&self) -> Vec<(f64, f64)> {
        let (last, x) = self.knots[self.knots.len() - 1];
        let end = last + (self.end - x) / self.scale;
        // Of each gap the first knot ends a segment, and the second begins one.
        let starts = self.knots.iter().step_by(2).map(|(from, _)| *from);
        let ends = self.knots.iter().skip(1).step_by(2).map(|(to, _)| *to);
        starts.zip(ends.chain([end])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_even_where_something_happens() {
        let axis = Axis::new(&[0.0, 1.0, 4.0, 9.0], 100.0, 10.0);
        assert!(axis.gaps.is_empty());
        assert_eq!(
            [0.0, 2.5, 9.0].map(|time| axis.x(time)),
            [100.0, 125.0, 190.0]
        );
        assert_eq!(axis.end, 190.0);
        let marks = axis.marks(36.0);
        assert_eq!(marks.len(), 2, "{marks:?}");
    }

    #[test]
    fn leaves_out_a_long_silence() {
        let axis = Axis::new(&[0.0, 1.0, 101.0, 102.0], 0.0, 40.0);
        assert_eq!(axis.gaps, [(60.0, 99.0)]);
        assert_eq!(axis.x(1.0), 40.0);
        assert_eq!(
            axis.x(50.0),
            60.0 + GAP,
            "everything in the gap is at its end"
        );
        assert_eq!(axis.x(101.0), 60.0 + GAP + 20.0);
        assert_eq!(axis.end, 60.0 + GAP + 60.0);
        let marks = axis.marks(36.0).into_iter();
        let numbers: Vec<u64> = marks.map(|(_, number)| number).collect();
        assert_eq!(numbers, [0, 1, 101, 102]);
    }
}
