//! Divides the height of a terminal among panes.

/// The lines of a pane of which only the title is shown.
const TITLE: usize = 1;
/// The least lines with which a pane shows anything: title, headings and one row.
const LEAST: usize = 3;

/// The lines that each pane gets, if it needs them, before any pane but the first gets more: title, headings and two rows.
const SOME: usize = 4;

/// Gives each pane its lines. `needs`: the lines of each whole pane, with its title. `order`: the panes, the most important first. The first pane
/// gets all it needs, except for the titles of the others. Then the others get lines in this order, if they get enough to show a row.
pub fn share(height: usize, needs: &[usize], order: &[usize]) -> Vec<usize> {
    let mut lines: Vec<usize> = needs.iter().map(|need| (*need).min(TITLE)).collect();
    let mut left = height.saturating_sub(lines.iter().sum());
    for limit in [SOME, usize::MAX] {
        for (place, pane) in order.iter().enumerate() {
            let (Some(need), Some(has)) = (needs.get(*pane), lines.get_mut(*pane)) else { continue };
            let wanted = if place == 0 { *need } else { (*need).min(limit) };
            let more = wanted.saturating_sub(*has).min(left);
            if *has + more >= LEAST.min(*need) {
                *has += more;
                left -= more;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_room_all_panes_have_what_they_need() {
        assert_eq!(share(50, &[5, 10, 4], &[1, 0, 2]), [5, 10, 4]);
    }

    #[test]
    fn the_pane_in_focus_comes_first_and_the_others_keep_their_titles() {
        assert_eq!(share(20, &[30, 10, 4], &[0, 1, 2]), [18, 1, 1]);
        assert_eq!(share(20, &[30, 10, 4], &[1, 0, 2]), [6, 10, 4]);
    }

    #[test]
    fn all_others_have_two_rows_before_one_has_more() {
        assert_eq!(share(20, &[4, 30, 30, 30], &[0, 3, 1, 2]), [4, 4, 4, 8]);
        assert_eq!(
            share(11, &[4, 30, 30, 30], &[0, 3, 1, 2]),
            [4, 1, 1, 5],
            "of what is left, one has something to show"
        );
    }

    #[test]
    fn no_height_is_exceeded() {
        for height in 0..60 {
            for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
                let lines = share(height, &[3, 40, 2, 7], &order);
                assert!(lines.iter().sum::<usize>() <= height.max(4), "{height} {order:?} {lines:?}");
            }
        }
    }
}
