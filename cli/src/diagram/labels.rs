//! Where words go in a diagram, so that they cover neither each other nor what is drawn.

/// A rectangle, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

impl Area {
    /// What `text` takes around a point, in the diagram's font.
    pub(crate) fn of_text(text: &str, (x, y): (f64, f64)) -> Self {
        let half = width(text) / 2.0;
        Self {
            left: x - half,
            top: y - 8.0,
            right: x + half,
            bottom: y + 6.0,
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// Whether the line passes through it (Liang and Barsky 1984).
    fn is_crossed_by(&self, ((x1, y1), (x2, y2)): Line) -> bool {
        let (dx, dy) = (x2 - x1, y2 - y1);
        let (mut enters, mut leaves) = (0.0_f64, 1.0_f64);
        for (p, q) in [
            (-dx, x1 - self.left),
            (dx, self.right - x1),
            (-dy, y1 - self.top),
            (dy, self.bottom - y1),
        ] {
            if p == 0.0 {
                if q < 0.0 {
                    return false;
                }
            } else if p < 0.0 {
                enters = enters.max(q / p);
            } else {
                leaves = leaves.min(q / p);
            }
        }
        enters <= leaves
    }
}

/// From where to where.
pub(crate) type Line = ((f64, f64), (f64, f64));

/// How wide `text` is at 12 pixels, generously.
pub(crate) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.0
}

/// What is on the page already.
#[derive(Debug, Default)]
pub(crate) struct Page {
    words: Vec<Area>,
    pub(crate) lines: Vec<Line>,
    pub(crate) bars: Vec<Area>,
}

impl Page {
    /// The best of the `places` for the middle of `text`, which is then taken; `None` if it would
    /// cover other words everywhere. `own` is the line that it belongs to, which may touch it.
    pub(crate) fn place(
        &mut self,
        text: &str,
        places: impl IntoIterator<Item = (f64, f64)>,
        own: Option<Line>,
    ) -> Option<(f64, f64)> {
        let free = places.into_iter().filter(|place| {
            let area = Area::of_text(text, *place);
            !self.words.iter().any(|other| other.overlaps(&area))
        });
        let priced = free.map(|place| (place, self.harm(&Area::of_text(text, place), own)));
        // The first of the best: places come in the order of preference.
        let best = priced.reduce(|best, other| if other.1 < best.1 { other } else { best });
        let (place, _) = best?;
        self.words.push(Area::of_text(text, place));
        Some(place)
    }

    /// Keeps words away from there.
    pub(crate) fn reserve(&mut self, area: Area) {
        self.words.push(area);
    }

    /// How much of what is drawn words at `area` would cover.
    fn harm(&self, area: &Area, own: Option<Line>) -> u32 {
        let lines = self.lines.iter().filter(|line| area.is_crossed_by(**line));
        let lines: u32 = lines
            .map(|line| if Some(*line) == own { 1 } else { 3 })
            .sum();
        let bars = self.bars.iter().filter(|bar| bar.overlaps(area)).count();
        lines + 2 * bars as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_avoid_each_other_and_lines() {
        let mut page = Page::default();
        let (left, right, far) = ((0.0, 0.0), (10.0, 0.0), (500.0, 0.0));
        assert_eq!(page.place("REQUEST", [left, right], None), Some(left));
        assert_eq!(page.place("REQUEST", [left, right], None), None);
        assert_eq!(page.place("REQUEST", [left, right, far], None), Some(far));
        page.lines.push(((900.0, -50.0), (1100.0, 50.0)));
        let (crossed, clear) = ((1000.0, 0.0), (1000.0, 40.0));
        assert_eq!(page.place("REPLY", [crossed, clear], None), Some(clear));
    }

    #[test]
    fn a_line_that_passes_by_does_not_cross() {
        let area = Area::of_text("x", (0.0, 0.0));
        assert!(area.is_crossed_by(((-50.0, -50.0), (50.0, 50.0))));
        assert!(!area.is_crossed_by(((-50.0, -20.0), (50.0, -20.0))));
        assert!(!area.is_crossed_by(((-50.0, 0.0), (-20.0, 0.0))));
    }
}
