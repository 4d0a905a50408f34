#pragma once

/// Launches same_name.cu's kernel of that name.
void launchOtherSameName(int* out);
