//! The clock changes what a schedule of the link says.

use tokio::time::sleep;

use super::super::link_rate::LOOK_EVERY;
use super::Desk;

/// Tells the data path what it says now. Whoever changes the settings of the link does that then.
pub(super) async fn follow_for_ever(desk: &Desk) {
    loop {
        sleep(LOOK_EVERY).await;
        let Ok(_alone) = desk.changing.try_lock() else { continue };
        let effective = desk.link_overrides.lock().await.effective(&desk.config().link.settings);
        if !effective.schedule.is_off() && desk.link_rate.tell(&effective, &desk.control).await.is_err() {
            return;
        }
    }
}
