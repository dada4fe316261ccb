<?php
// Run once by `plimsoll-lab wordpress up`: the tables, five pages of unequal length and their comments.
// Argument: the site's directory. Prints `ID NAME` of each page.
define('WP_INSTALLING', true);
$_SERVER['HTTP_HOST'] = 'lab.example';
require $argv[1] . '/wp-load.php';
require_once ABSPATH . 'wp-admin/includes/upgrade.php';

$words = explode(' ', 'load balancer web server page request response queue weight backend client time cost deadline');
function text(int $paragraphs, array $words): string
{
    $text = '';
    for ($i = 0; $i < $paragraphs; $i++) {
        $line = array_map(fn($k) => $words[($i * 7 + $k * 3) % count($words)], range(0, 60));
        $text .= '<!-- wp:paragraph --><p>' . implode(' ', $line) . "</p><!-- /wp:paragraph -->\n";
    }
    return $text;
}

wp_install('Lab', 'lab', 'lab@lab.example', false, '', bin2hex(random_bytes(16)));
$options = [
    'permalink_structure' => '/%postname%/',
    'comment_moderation' => 0,
    'comment_previously_approved' => 0,
    'comments_notify' => 0,
    'moderation_notify' => 0,
];
foreach ($options as $option => $value) {
    update_option($option, $value);
}
for ($page = 1; $page <= 5; $page++) {
    $id = wp_insert_post([
        'post_title' => "Page $page",
        'post_name' => "page-$page",
        'post_type' => 'post',
        'post_status' => 'publish',
        'comment_status' => 'open',
        'post_content' => text(4 * $page * $page, $words),
    ], true);
    if (is_wp_error($id)) {
        fwrite(STDERR, $id->get_error_message() . "\n");
        exit(1);
    }
    for ($comment = 0; $comment < 6 * $page; $comment++) {
        wp_insert_comment([
            'comment_post_ID' => $id,
            'comment_author' => "Reader $comment",
            'comment_content' => text(1, $words),
            'comment_approved' => 1,
        ]);
    }
    echo "$id page-$page\n";
}
$wp_rewrite->init();
$wp_rewrite->flush_rules(false);
