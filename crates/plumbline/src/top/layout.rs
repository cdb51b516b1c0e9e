//! How panes share the height of a terminal.

/// Lines of a pane that has none of its rows: its title.
const TITLE: usize = 1;
/// What a pane takes at least to show anything: its title, the headings and a row.
const LEAST: usize = 3;

/// What a pane gets, if it needs so much, before any pane but the first gets more: two rows.
const SOME: usize = 4;

/// Gives each pane its lines. `needs` are what each would take in full, title included; `order` are the panes that get lines, the most
/// important first. That one gets all that it needs, as far as the titles of the others leave it; then the others in turn, as far as
/// something of them can be seen.
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
