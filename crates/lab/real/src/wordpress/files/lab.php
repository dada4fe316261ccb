<?php
// What a POST adds is removed as soon as it is processed.
add_filter('pre_wp_mail', '__return_false');
add_filter('wp_is_comment_flood', '__return_false', 99);
add_filter('duplicate_comment_id', '__return_zero');
add_action('comment_post', function ($id) {
    add_action('shutdown', function () use ($id) {
        wp_delete_comment($id, true);
    });
});
