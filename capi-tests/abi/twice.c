/* Two translation units that include the header twice link into one program; see twice_other.c. */
#include <nexar.h>
#include <nexar.h>

nexarConfig_t other_config(void);

int main(void) {
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  int version = 0;
  return nexarGetVersion(&version) != nexarSuccess || config.magic != other_config().magic;
}
